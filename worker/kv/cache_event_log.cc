#include "worker/kv/cache_event_log.h"

#include <utility>

#include "worker/core/recycle.h"

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
  ResizeRecycling(out, events_.size(), spare_, kMaxSpare);
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event& event = events_[i];
    const auto first = hashes_.begin() + static_cast<ptrdiff_t>(event.first);
    out[i].kind = event.kind;
    out[i].cache_kind = event.cache_kind;
    out[i].parent = event.parent;
    out[i].hashes.assign(first, first + static_cast<ptrdiff_t>(event.count));
  }
  Forget();
}

void CacheEventLog::Forget() {
  events_.clear();
  hashes_.clear();
  open_ = false;
}

}  // namespace quire
