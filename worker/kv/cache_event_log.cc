#include "worker/kv/cache_event_log.h"

#include <utility>

namespace quire {

CacheEventLog::Event& CacheEventLog::Add(CacheEvents::Kind kind, uint32_t cache_kind) {
  ++seq_;
  open_ = true;
  events_.push_back({.kind = kind, .cache_kind = cache_kind, .first = hashes_.size()});
  return events_.back();
}

void CacheEventLog::Stored(uint32_t cache_kind, uint64_t parent, uint64_t hash) {
  const Event* last = open_ ? &events_.back() : nullptr;
  const bool grows = last != nullptr && last->kind == CacheEvents::Kind::kStored &&
                     last->cache_kind == cache_kind && hashes_.back() == parent &&
                     last->count < kMaxHashes;
  if (!grows) Add(CacheEvents::Kind::kStored, cache_kind).parent = parent;
  ++events_.back().count;
  hashes_.push_back(hash);
}

void CacheEventLog::Removed(uint32_t cache_kind, uint64_t hash) {
  const Event* last = open_ ? &events_.back() : nullptr;
  const bool grows = last != nullptr && last->kind == CacheEvents::Kind::kRemoved &&
                     last->cache_kind == cache_kind && last->count < kMaxHashes;
  if (!grows) Add(CacheEvents::Kind::kRemoved, cache_kind);
  ++events_.back().count;
  hashes_.push_back(hash);
}

void CacheEventLog::Cleared(uint32_t cache_kind) { Add(CacheEvents::Kind::kCleared, cache_kind); }

uint64_t CacheEventLog::Seq() {
  open_ = false;
  return seq_;
}

void CacheEventLog::Take(std::vector<CacheEvents>& out) {
  for (CacheEvents& read : out) Keep(read);
  out.clear();
  out.reserve(reserved_);
  for (const Event& event : events_) {
    Reuse(event.count, out);
    CacheEvents& told = out.back();
    const auto first = hashes_.begin() + static_cast<ptrdiff_t>(event.first);
    told.kind = event.kind;
    told.cache_kind = event.cache_kind;
    told.parent = event.parent;
    told.hashes.assign(first, first + static_cast<ptrdiff_t>(event.count));
  }
  Forget();
}

void CacheEventLog::Reserve(size_t events) {
  reserved_ = events;
  events_.reserve(events);
  hashes_.reserve(events);
  spare_long_.reserve(kMaxSpareLong);
  spare_short_.reserve(events);
  while (spare_short_.size() < events) spare_short_.emplace_back().hashes.reserve(kShort);
}

void CacheEventLog::Keep(CacheEvents& event) {
  const bool is_long = event.hashes.capacity() > kShort;
  std::vector<CacheEvents>& spare = is_long ? spare_long_ : spare_short_;
  const size_t most = is_long ? kMaxSpareLong : reserved_;
  if (event.hashes.capacity() > 0 && spare.size() < most) spare.push_back(std::move(event));
}

void CacheEventLog::Reuse(size_t hash_count, std::vector<CacheEvents>& out) {
  std::vector<CacheEvents>& spare = hash_count > kShort ? spare_long_ : spare_short_;
  if (spare.empty()) {
    out.emplace_back().hashes.reserve(hash_count > kShort ? kMaxHashes : kShort);
    return;
  }
  out.push_back(std::move(spare.back()));
  spare.pop_back();
}

void CacheEventLog::Forget() {
  events_.clear();
  hashes_.clear();
  open_ = false;
}

}  // namespace quire
