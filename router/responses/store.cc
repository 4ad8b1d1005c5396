#include "router/responses/store.h"

#include <vector>

namespace quire::responses {
namespace {

// Of a response beside its texts: nodes of the maps, and what allocations round up.
constexpr size_t kBytesPerResponse = 1024;
// One response may take this part of the store, so that a few cannot push out all others.
constexpr size_t kPartOfOne = 4;

Gauge& AddGauge(Metrics& metrics, const char* name, const char* help) {
  return metrics.AddGauge({.name = name, .help = help});
}

Counter& AddNotKept(Metrics& metrics, const char* cause) {
  return metrics.AddCounter({.name = "quire_router_responses_not_kept_total",
                             .help = "Responses that their client wanted kept: too large for a "
                                     "quarter of --responses-store, or no memory of clients left",
                             .labels = {{"cause", cause}}});
}

}  // namespace

Store::Store(size_t limit, std::shared_ptr<MemoryAccount> clients, Metrics& metrics)
    : limit_(limit),
      clients_(std::move(clients)),
      kept_(AddGauge(metrics, "quire_router_kept_responses",
                     "Responses that clients can continue, read and delete by id")),
      kept_bytes_(AddGauge(metrics, "quire_router_kept_response_bytes",
                           "Memory of these responses, of --responses-store")),
      evicted_(metrics.AddCounter(
          {.name = "quire_router_kept_responses_evicted_total",
           .help = "Kept responses that gave way to newer ones, at --responses-store"})),
      too_large_(AddNotKept(metrics, "too_large")),
      no_memory_(AddNotKept(metrics, "memory")) {}

size_t Store::BytesOf(std::string_view owner, std::string_view id, const Turn& turn) {
  return kBytesPerResponse + 2 * (owner.size() + id.size()) + turn.items.capacity() +
         turn.output.capacity() + turn.response.capacity();
}

std::shared_ptr<const KeptResponse> Store::Find(std::string_view owner, std::string_view id) const {
  MutexLock lock(mutex_);
  const auto of = owners_.find(owner);
  if (of == owners_.end()) return nullptr;
  const auto entry = of->second.entries.find(id);
  return entry == of->second.entries.end() ? nullptr : entry->second.kept;
}

void Store::Keep(std::string_view owner, std::string_view id, Turn turn) {
  const size_t bytes = BytesOf(owner, id, turn);
  if (bytes > limit_ / kPartOfOne) return too_large_.Add();
  auto kept = std::make_shared<KeptResponse>(std::move(turn), clients_);
  if (!kept->hold.TryResize(bytes)) return no_memory_.Add();
  std::vector<std::shared_ptr<const KeptResponse>> gone;  // destroyed after the lock
  MutexLock lock(mutex_);
  const auto same = owners_.find(owner);
  if (same != owners_.end() && same->second.entries.contains(id)) gone.push_back(Take(same, id));
  while (bytes_ + bytes > limit_) {
    const auto most = owners_.find(by_bytes_.rbegin()->second);
    const std::string oldest = most->second.ids_by_age.begin()->second;
    gone.push_back(Take(most, oldest));
    evicted_.Add();
  }
  const auto of = owners_.try_emplace(std::string(owner)).first;
  const uint64_t age = next_age_++;
  of->second.entries.emplace(std::string(id), Entry{std::move(kept), age, bytes});
  of->second.ids_by_age.emplace(age, id);
  ++count_;
  SetBytes(of, of->second.bytes + bytes);
}

bool Store::Erase(std::string_view owner, std::string_view id) {
  std::shared_ptr<const KeptResponse> gone;  // destroyed after the lock
  MutexLock lock(mutex_);
  const auto of = owners_.find(owner);
  if (of == owners_.end() || !of->second.entries.contains(id)) return false;
  gone = Take(of, id);
  return true;
}

std::shared_ptr<const KeptResponse> Store::Take(Owners::iterator owner, std::string_view id) {
  Owner& of = owner->second;
  const auto entry = of.entries.find(id);
  std::shared_ptr<const KeptResponse> kept = std::move(entry->second.kept);
  const size_t bytes = entry->second.bytes;
  of.ids_by_age.erase(entry->second.age);
  of.entries.erase(entry);
  --count_;
  SetBytes(owner, of.bytes - bytes);
  return kept;
}

void Store::SetBytes(Owners::iterator owner, size_t bytes) {
  bytes_ = bytes_ + bytes - owner->second.bytes;
  by_bytes_.erase({owner->second.bytes, owner->first});
  owner->second.bytes = bytes;
  if (owner->second.entries.empty()) {
    owners_.erase(owner);
  } else {
    by_bytes_.emplace(bytes, owner->first);
  }
  kept_.Set(static_cast<double>(count_));
  kept_bytes_.Set(static_cast<double>(bytes_));
}

size_t Store::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace quire::responses
