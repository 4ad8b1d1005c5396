#include "router/fleet/cache_index.h"

#include <algorithm>
#include <array>

#include "common/block_hash.h"
#include "common/check.h"
#include "common/planted_bug.h"
#include "common/wire/features.h"

namespace quire {
namespace {

constexpr size_t kMaxKinds = 8;
constexpr uint32_t kMaxBlockSize = 4096;
constexpr uint64_t kEverything = 0;  // in place of a hash: the cache was cleared

int BitOf(WorkerIndex worker) { return static_cast<int>(worker.value() % HolderTable::kWorkers); }
static_assert(HolderTable::kWorkers == kCachesAtOnce);
size_t ShardOf(WorkerIndex worker) { return worker.value() / HolderTable::kWorkers; }

bool Follows(const WorkerHello& hello) {
  const bool offers = std::find(hello.features.begin(), hello.features.end(), kFeatureSnapshot) !=
                      hello.features.end();
  return offers && hello.prefix_caching && hello.hash_scheme == kHashScheme &&
         hello.block_size > 0 && hello.block_size <= kMaxBlockSize && !hello.cache_groups.empty() &&
         hello.cache_groups.size() <= kMaxKinds;
}

}  // namespace

std::string_view CacheStateName(CacheState state) {
  switch (state) {
    case CacheState::kNone:
      return "none";
    case CacheState::kCold:
      return "cold";
    case CacheState::kSyncing:
      return "syncing";
    case CacheState::kExact:
      return "exact";
    case CacheState::kStale:
      return "stale";
    case CacheState::kOverLimit:
      return "over_limit";
  }
  return "unknown";
}

CacheIndex::Follower& CacheIndex::Get(WorkerIndex worker) {
  if (worker.value() >= followers_.size()) followers_.resize(worker.value() + 1);
  return followers_[worker.value()];
}

CacheState CacheIndex::state(WorkerIndex worker) const {
  return worker.value() < followers_.size() ? followers_[worker.value()].state : CacheState::kNone;
}

// ------------------------------------------------------------------------------- following a
// worker

void CacheIndex::Greeted(WorkerIndex worker, const WorkerHello& hello, Micros now) {
  Lost(worker);
  if (!Follows(hello)) return;
  Follower& follower = Get(worker);
  follower.state = CacheState::kCold;
  wanted_ = true;
  follower.numerics_id = hello.numerics_id;
  follower.block_size = hello.block_size;
  follower.kinds.clear();
  for (const CacheGroupInfo& group : hello.cache_groups) {
    follower.kinds.push_back(
        {.window = static_cast<int>(std::min<uint32_t>(group.window, 1u << 30))});
  }
  follower.shape = ShapeOf(follower);
  follower.sequence_known = false;
  follower.event_seq = 0;
  follower.retry = kFirstRetry;
  follower.ask_at = now;
}

uint64_t CacheIndex::ShapeOf(const Follower& follower) {
  for (const Follower& other : followers_) {
    if (&other != &follower && other.shape != 0 && SameShape(other, follower)) return other.shape;
  }
  return ++last_shape_;
}

bool CacheIndex::SameShape(const Follower& a, const Follower& b) {
  return a.block_size == b.block_size && a.numerics_id == b.numerics_id &&
         std::equal(a.kinds.begin(), a.kinds.end(), b.kinds.begin(), b.kinds.end(),
                    [](const CacheKind& x, const CacheKind& y) { return x.window == y.window; });
}

void CacheIndex::Lost(WorkerIndex worker) {
  Follower& follower = Get(worker);
  if (follower.state == CacheState::kNone) return;
  Forget(worker);
  ++follower.generation;
  follower.state = CacheState::kNone;
}

void CacheIndex::Forget(WorkerIndex worker) {
  Get(worker).recent.clear();
  if (QUIRE_BUG(cache_of_a_dead_worker_kept)) return;
  if (ShardOf(worker) >= shards_.size()) return;
  for (HolderTable& table : shards_[ShardOf(worker)].kinds) table.RemoveWorker(BitOf(worker));
}

void CacheIndex::MakeStale(WorkerIndex worker, Follower& follower, Micros now) {
  ++counters_.became_stale;
  ++follower.generation;
  const bool lasted = follower.state == CacheState::kExact && now - follower.exact_at > kLastRetry;
  if (lasted) follower.retry = kFirstRetry;
  follower.state = CacheState::kStale;
  wanted_ = true;
  follower.sequence_known = false;
  follower.event_seq = 0;
  // Between half and all of it, so that routers that lost the same worker do not request in step.
  const auto half = static_cast<uint64_t>(follower.retry / 2);
  follower.ask_at = now + static_cast<Micros>(half + rng_.Next() % (half + 1));
  follower.retry = std::min(2 * follower.retry, kLastRetry);
  Forget(worker);
}

void CacheIndex::MakeOverLimit(WorkerIndex worker, Follower& follower) {
  ++counters_.over_limit;
  ++follower.generation;
  follower.state = CacheState::kOverLimit;
  Forget(worker);
}

std::optional<CacheIndex::Ask> CacheIndex::NextAsk(Micros now) {
  if (!wanted_) return std::nullopt;
  wanted_ = false;
  uint32_t asking = 0;
  for (Follower& follower : followers_) asking += follower.state == CacheState::kSyncing;
  for (size_t i = 0; i < followers_.size(); ++i) {
    Follower& follower = followers_[i];
    const bool wants = follower.state == CacheState::kCold || follower.state == CacheState::kStale;
    wanted_ = wanted_ || wants;
    if (!wants || now < follower.ask_at) continue;
    if (asking >= max_snapshots_) {
      counters_.snapshots_delayed += follower.delayed ? 0 : 1;
      follower.delayed = true;
      continue;
    }
    const WorkerIndex worker(static_cast<uint32_t>(i));
    follower.delayed = false;
    follower.state = CacheState::kSyncing;
    follower.asked_at = now;
    ++counters_.snapshots;
    return Ask{worker, ++follower.snapshot_number};
  }
  return std::nullopt;
}

bool CacheIndex::Store(WorkerIndex worker, uint32_t kind, std::span<const uint64_t> hashes) {
  if (ShardOf(worker) >= shards_.size()) shards_.resize(ShardOf(worker) + 1);
  std::vector<HolderTable>& tables = shards_[ShardOf(worker)].kinds;
  if (kind >= tables.size()) tables.resize(kind + 1);
  HolderTable& table = tables[kind];
  const size_t others = Bytes() - table.Bytes();
  if (others >= max_bytes_) return false;
  for (const uint64_t hash : hashes) {
    if (!table.Add(hash, BitOf(worker), max_bytes_ - others)) return false;
  }
  return true;
}

void CacheIndex::Remember(Follower& follower, uint64_t seq, uint64_t hash) {
  if (follower.recent.size() == kRecentEvents) follower.recent.pop_front();
  follower.recent.emplace_back(seq, hash);
}

bool CacheIndex::Apply(WorkerIndex worker, Follower& follower, const CacheEvents& event,
                       uint64_t seq) {
  if (event.kind == CacheEvents::Kind::kCleared) {
    Forget(worker);
    Remember(follower, seq, kEverything);
    return true;
  }
  for (const uint64_t hash : event.hashes) Remember(follower, seq, hash);
  if (event.kind == CacheEvents::Kind::kStored) {
    return Store(worker, event.cache_kind, event.hashes);
  }
  if (ShardOf(worker) >= shards_.size()) return true;
  std::vector<HolderTable>& tables = shards_[ShardOf(worker)].kinds;
  if (event.cache_kind >= tables.size()) return true;
  for (const uint64_t hash : event.hashes) tables[event.cache_kind].Remove(hash, BitOf(worker));
  return true;
}

void CacheIndex::Stepped(WorkerIndex worker, const StepFrame& step, Micros now) {
  Follower& follower = Get(worker);
  const bool follows =
      follower.state == CacheState::kSyncing || follower.state == CacheState::kExact;
  if (!follows) return;
  if (follower.state == CacheState::kSyncing && now - follower.asked_at > kSnapshotTimeout) {
    return MakeStale(worker, follower, now);
  }
  if (step.events_dropped) return MakeStale(worker, follower, now);
  uint64_t seq = step.events.empty() ? step.event_seq : step.first_event_seq - 1;
  if (!follower.sequence_known) {
    follower.event_seq = seq;
    follower.sequence_known = true;
  }
  if (seq != follower.event_seq) return MakeStale(worker, follower, now);
  for (const CacheEvents& event : step.events) {
    ++seq;
    if (event.cache_kind >= follower.kinds.size()) return MakeStale(worker, follower, now);
    if (QUIRE_BUG(event_lost_during_scan) && follower.state == CacheState::kSyncing) continue;
    if (!Apply(worker, follower, event, seq)) return MakeOverLimit(worker, follower);
  }
  follower.event_seq = seq;
  if (step.event_seq != seq) MakeStale(worker, follower, now);
}

void CacheIndex::Snapshot(WorkerIndex worker, const CacheSnapshotPart& part, Micros now) {
  Follower& follower = Get(worker);
  // Parts of an answer that is no longer expected.
  if (follower.state != CacheState::kSyncing || part.number != follower.snapshot_number) return;
  if (part.cache_kind >= follower.kinds.size()) return MakeStale(worker, follower, now);
  if (!Store(worker, part.cache_kind, part.hashes)) return MakeOverLimit(worker, follower);
  if (!part.last) return;
  follower.state = CacheState::kExact;
  follower.exact_at = now;
}

// --------------------------------------------------------------------------------- asking the
// index

// Candidates whose blocks are hashed alike and are in the same tables.
struct CacheIndex::Group {
  const std::vector<uint64_t>* chain = nullptr;
  const Shard* shard = nullptr;
  const Follower* like = nullptr;
  std::vector<size_t> members;  // places in the view
};

void CacheIndex::Score(std::span<WorkerView> workers, PromptChains& chains) const {
  std::vector<Group> groups;
  for (size_t i = 0; i < workers.size(); ++i) {
    workers[i].cached_tokens = 0;
    const WorkerIndex worker = workers[i].worker;
    if (state(worker) != CacheState::kExact || ShardOf(worker) >= shards_.size()) continue;
    const Follower& follower = followers_[worker.value()];
    const Shard& shard = shards_[ShardOf(worker)];
    const auto fits = [&](const Group& group) {
      return group.shard == &shard && group.like->shape == follower.shape;
    };
    auto group = std::find_if(groups.begin(), groups.end(), fits);
    if (group == groups.end()) {
      groups.push_back(
          {&chains.For(follower.numerics_id, follower.block_size), &shard, &follower, {}});
      group = groups.end() - 1;
      group->members.reserve(workers.size());
    }
    group->members.push_back(i);
  }
  for (const Group& group : groups) ScoreGroup(group, workers, chains.token_count());
}

void CacheIndex::ScoreGroup(const Group& group, std::span<WorkerView> workers,
                            int64_t token_count) const {
  const std::vector<uint64_t>& chain = *group.chain;
  const std::vector<CacheKind>& kinds = group.like->kinds;
  uint64_t members = 0;
  for (const size_t member : group.members) {
    members |= uint64_t{1} << BitOf(workers[member].worker);
  }
  const std::vector<HolderTable>& tables = group.shard->kinds;
  std::array<HolderTable::Cursor, kMaxKinds> cursors;
  const auto rows_of = [&](int kind, int64_t first, std::span<uint64_t> rows) {
    const auto table = static_cast<size_t>(kind);
    const auto begin = static_cast<size_t>(first);
    if (table >= tables.size()) {  // no worker ever reported such a block
      std::fill(rows.begin(), rows.end(), 0);
      return;
    }
    tables[table].HoldersOf(std::span(chain).subspan(begin, rows.size()), cursors[table], rows);
  };
  const auto cached = CachedPrefixes(kinds, static_cast<int>(group.like->block_size), token_count,
                                     members, rows_of);
  for (const size_t member : group.members) {
    workers[member].cached_tokens =
        static_cast<uint32_t>(cached[static_cast<size_t>(BitOf(workers[member].worker))]);
  }
}

CachePrediction CacheIndex::Predict(WorkerIndex worker, uint32_t cached_tokens) const {
  if (state(worker) != CacheState::kExact) return {};
  const Follower& follower = followers_[worker.value()];
  if (!follower.sequence_known) return {};  // no Step since the snapshot began
  return {true, cached_tokens, follower.event_seq, follower.generation};
}

CacheVerdict CacheIndex::Judge(WorkerIndex worker, const CachePrediction& prediction,
                               PromptChains& chains, uint32_t real_tokens, uint64_t lookup_seq) {
  if (!prediction.made) return CacheVerdict::kUnknown;
  if (prediction.tokens == real_tokens) {
    ++counters_.predictions_exact;
    return CacheVerdict::kExact;
  }
  const Follower& follower = Get(worker);
  // A new epoch, a gap, or more events than are remembered: other events came between.
  bool raced = follower.generation != prediction.generation || lookup_seq > follower.event_seq ||
               (follower.recent.size() == kRecentEvents &&
                follower.recent.front().first > prediction.event_seq);
  if (!raced) {
    std::vector<uint64_t> chain = chains.For(follower.numerics_id, follower.block_size);
    std::sort(chain.begin(), chain.end());
    raced = std::any_of(follower.recent.begin(), follower.recent.end(), [&](const auto& event) {
      const auto& [seq, hash] = event;
      if (seq <= prediction.event_seq || seq > lookup_seq) return false;
      return hash == kEverything || std::binary_search(chain.begin(), chain.end(), hash);
    });
  }
  ++(raced ? counters_.predictions_raced : counters_.predictions_wrong);
  return raced ? CacheVerdict::kRaced : CacheVerdict::kWrong;
}

uint64_t CacheIndex::BlocksOf(WorkerIndex worker) const {
  uint64_t blocks = 0;
  if (ShardOf(worker) >= shards_.size()) return blocks;
  for (const HolderTable& table : shards_[ShardOf(worker)].kinds) {
    blocks += table.HeldBy(BitOf(worker));
  }
  return blocks;
}

size_t CacheIndex::Bytes() const {
  size_t bytes = 0;
  for (const Shard& shard : shards_) {
    for (const HolderTable& table : shard.kinds) bytes += table.Bytes();
  }
  return bytes;
}

void CacheIndex::CheckInvariants() const {
  QUIRE_CHECK(Bytes() <= max_bytes_);
  uint32_t syncing = 0;
  for (const Follower& follower : followers_) {
    syncing += follower.state == CacheState::kSyncing;
    const bool wants = follower.state == CacheState::kCold || follower.state == CacheState::kStale;
    QUIRE_CHECK_MSG(wanted_ || !wants, "who wants a snapshot is looked for");
    QUIRE_CHECK(follower.recent.size() <= kRecentEvents);
    QUIRE_CHECK(follower.sequence_known || follower.event_seq == 0);
    QUIRE_CHECK((follower.shape == 0) == follower.kinds.empty());
    for (const Follower& other : followers_) {
      const bool known = follower.shape != 0 && other.shape != 0;
      QUIRE_CHECK(!known || SameShape(follower, other) == (follower.shape == other.shape));
    }
  }
  QUIRE_CHECK(syncing <= max_snapshots_);
  for (const Shard& shard : shards_) {
    for (const HolderTable& table : shard.kinds) table.CheckInvariants();
  }
}

}  // namespace quire
