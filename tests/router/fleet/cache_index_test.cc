// The index of the workers' caches against a plain model of what they hold.
#include "router/fleet/cache_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "common/block_hash.h"

namespace quire {
namespace {

constexpr uint32_t kBlock = 4;

class CountingRng final : public Rng {
 public:
  uint64_t Next() override { return next_ += 7; }

 private:
  uint64_t next_ = 0;
};

// A worker that tells truthfully what it stores and removes.
class ModelWorker {
 public:
  ModelWorker(uint32_t index, std::vector<uint32_t> windows)
      : worker_(index), windows_(std::move(windows)), held_(windows_.size()) {}

  WorkerHello Hello() const {
    WorkerHello hello;
    hello.worker_id = "w" + std::to_string(worker_.value());
    hello.features = {"snapshot"};
    hello.prefix_caching = true;
    hello.hash_scheme = std::string(kHashScheme);
    hello.block_size = kBlock;
    hello.numerics_id = "n";
    for (const uint32_t window : windows_) {
      hello.cache_groups.push_back({window == 0 ? "full" : "sliding", 1, window});
    }
    return hello;
  }

  void Store(uint32_t kind, uint64_t hash) {
    if (!held_[kind].insert(hash).second) return;
    pending_.push_back({CacheEvents::Kind::kStored, kind, 0, {hash}});
  }
  void Remove(uint32_t kind, uint64_t hash) {
    if (held_[kind].erase(hash) == 0) return;
    pending_.push_back({CacheEvents::Kind::kRemoved, kind, 0, {hash}});
  }
  void Clear() {
    for (auto& hashes : held_) hashes.clear();
    pending_.push_back({CacheEvents::Kind::kCleared, 0, 0, {}});
  }
  bool Holds(uint32_t kind, uint64_t hash) const { return held_[kind].contains(hash); }

  StepFrame Step() {
    StepFrame step;
    step.first_event_seq = pending_.empty() ? 0 : seq_ + 1;
    seq_ += pending_.size();
    step.event_seq = seq_;
    step.events = std::move(pending_);
    pending_.clear();
    return step;
  }
  uint64_t seq() const { return seq_ + pending_.size(); }

  void SendSnapshot(CacheIndex& index, uint64_t number) {
    for (uint32_t kind = 0; kind < held_.size(); ++kind) {
      const std::vector<uint64_t> hashes(held_[kind].begin(), held_[kind].end());
      index.Snapshot(worker_, {number, kind, hashes, kind + 1 == held_.size()}, 0);
    }
  }

  const std::vector<uint32_t>& windows() const { return windows_; }

 private:
  WorkerIndex worker_;
  std::vector<uint32_t> windows_;
  std::vector<std::set<uint64_t>> held_;  // by kind
  std::vector<CacheEvents> pending_;
  uint64_t seq_ = 0;
};

FleetView ViewOf(uint32_t count) {
  FleetView view;
  for (uint32_t i = 0; i < count; ++i) {
    view.workers.emplace_back();
    view.workers.back().worker = WorkerIndex(i);
  }
  return view;
}

uint32_t Truth(const ModelWorker& worker, const std::vector<uint64_t>& chain, int64_t tokens) {
  std::vector<CacheKind> kinds;
  for (const uint32_t window : worker.windows()) kinds.push_back({static_cast<int>(window)});
  return static_cast<uint32_t>(CachedPrefix(kinds, kBlock, tokens, [&](int kind, int64_t block) {
    return static_cast<size_t>(block) < chain.size() &&
           worker.Holds(static_cast<uint32_t>(kind), chain[static_cast<size_t>(block)]);
  }));
}

TEST(HolderTable, AgreesWithAMapThroughGrowthAndGarbage) {
  HolderTable table;
  std::map<uint64_t, uint64_t> model;
  std::mt19937_64 random(1);
  for (int i = 0; i < 60000; ++i) {
    const uint64_t hash = random() % 4000;  // 0 among them
    const int worker = static_cast<int>(random() % HolderTable::kWorkers);
    if (random() % 3 == 0) {
      table.Remove(hash, worker);
      model[hash] &= ~(uint64_t{1} << worker);
    } else {
      ASSERT_TRUE(table.Add(hash, worker, SIZE_MAX));
      model[hash] |= uint64_t{1} << worker;
    }
    if (i % 20000 == 0) table.RemoveWorker(3);
    if (i % 20000 == 0) {
      for (auto& [key, holders] : model) holders &= ~(uint64_t{1} << 3);
    }
  }
  table.CheckInvariants();
  for (uint64_t hash = 0; hash < 4000; ++hash) EXPECT_EQ(table.Holders(hash), model[hash]) << hash;
}

// Chains that were told of in one go, in pieces, in any order, again after they had gone, and not
// at all: whatever the cursor believes, what is read is what is held.
TEST(HolderTable, ReadsChainsAsItReadsTheirBlocks) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 60; ++round) {
    HolderTable table;
    std::vector<std::vector<uint64_t>> chains(8);
    for (std::vector<uint64_t>& chain : chains) {
      for (size_t i = 0; i < 150; ++i) chain.push_back(random());
      const std::vector<uint64_t>& other = chains[random() % chains.size()];  // a common beginning
      const size_t common = random() % 80;
      if (other.size() == chain.size()) std::copy_n(other.begin(), common, chain.begin());
    }
    for (int told = 0; told < 40; ++told) {
      std::vector<uint64_t> piece = chains[random() % chains.size()];
      piece.resize(random() % piece.size());
      if (random() % 4 == 0) std::shuffle(piece.begin(), piece.end(), random);
      const int worker = static_cast<int>(random() % 5);
      for (const uint64_t hash : piece) {
        if (random() % 50 == 0) continue;
        random() % 5 == 0 ? table.Remove(hash, worker) : void(table.Add(hash, worker, SIZE_MAX));
      }
      if (random() % 10 == 0) table.RemoveWorker(worker);
    }
    table.CheckInvariants();
    for (const std::vector<uint64_t>& chain : chains) {
      HolderTable::Cursor cursor;
      if (random() % 2 == 0) cursor.slot = random() % 1000;
      std::vector<uint64_t> rows(chain.size());
      for (size_t first = 0; first < chain.size();) {
        const size_t count = std::min<size_t>(1 + random() % 70, chain.size() - first);
        table.HoldersOf(std::span(chain).subspan(first, count), cursor,
                        std::span(rows).subspan(first, count));
        first += count;
      }
      for (size_t i = 0; i < chain.size(); ++i) ASSERT_EQ(rows[i], table.Holders(chain[i])) << i;
    }
  }
}

TEST(HolderTable, StaysWithinItsBytesAndReusesWhatIsFree) {
  constexpr size_t kLimit = 4096 * HolderTable::kSlotBytes;
  HolderTable table;
  uint64_t hash = 1000;
  while (table.Add(hash, 0, kLimit)) ++hash;
  EXPECT_LE(table.Bytes(), kLimit);
  const uint64_t fitted = hash - 1000;
  EXPECT_GT(fitted, 2000u);
  EXPECT_EQ(table.HeldCount(), fitted);
  EXPECT_FALSE(table.Add(hash, 0, kLimit));
  EXPECT_TRUE(table.Add(1000, 1, kLimit));  // known hashes cost nothing
  table.RemoveWorker(0);
  EXPECT_TRUE(table.Add(hash, 0, kLimit));  // the slots of those that nobody holds come free
  table.CheckInvariants();
}

class CacheIndexTest : public testing::Test {
 protected:
  void Attach(ModelWorker& worker, uint32_t index) {
    index_.Greeted(WorkerIndex(index), worker.Hello(), now_);
  }
  void AnswerAsks(std::vector<ModelWorker>& workers) {
    while (const auto ask = index_.NextAsk(now_)) {
      workers[ask->worker.value()].SendSnapshot(index_, ask->number);
    }
  }

  CountingRng rng_;
  CacheIndex index_{16u << 20, 4, rng_};
  Micros now_ = 1'000'000;
};

TEST_F(CacheIndexTest, AgreesWithTheWorkersThroughEventsGapsAndRestarts) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    CacheIndex index(16u << 20, 4, rng_);
    const std::vector<std::vector<uint32_t>> shapes = {{0}, {0, 9}, {11}};
    std::vector<ModelWorker> workers;
    for (uint32_t i = 0; i < 70; ++i) workers.emplace_back(i, shapes[(seed + i / 35) % 3]);
    std::vector<TokenId> prompt(60);
    for (TokenId& id : prompt) id = static_cast<TokenId>(random() % 2);
    PromptChains chains("m", "", "", prompt, {});
    const std::vector<uint64_t> chain = chains.For("n", kBlock);
    ASSERT_EQ(chain.size(), 15u);
    for (uint32_t i = 0; i < 70; ++i) index.Greeted(WorkerIndex(i), workers[i].Hello(), now_);
    int exact = 0;
    for (int round = 0; round < 60; ++round) {
      now_ += 100'000;
      for (uint32_t i = 0; i < 70; ++i) {
        ModelWorker& worker = workers[i];
        for (int change = 0; change < 4; ++change) {
          const uint32_t kind = random() % static_cast<uint32_t>(worker.windows().size());
          const uint64_t hash = chain[random() % chain.size()];
          random() % 4 == 0 ? worker.Remove(kind, hash) : worker.Store(kind, hash);
        }
        if (random() % 200 == 0) worker.Clear();
        StepFrame step = worker.Step();
        const uint32_t fault = random() % 100;
        // A frame is lost: the next one shows a gap, once there was one to compare it with.
        if (fault == 0 && index.Predict(WorkerIndex(i), 0).made) continue;
        if (fault == 1) step.events_dropped = true;
        index.Stepped(WorkerIndex(i), step, now_);
        if (fault == 2) index.Greeted(WorkerIndex(i), worker.Hello(), now_);
        if (fault == 3) index.Lost(WorkerIndex(i));
      }
      while (const auto ask = index.NextAsk(now_)) {
        workers[ask->worker.value()].SendSnapshot(index, ask->number);
      }
      FleetView view = ViewOf(70);
      index.Score(view.workers, chains);
      for (uint32_t i = 0; i < 70; ++i) {
        if (index.state(WorkerIndex(i)) != CacheState::kExact) {
          ASSERT_EQ(view.workers[i].cached_tokens, 0u);
          continue;
        }
        // A lost frame is known only with the next one: until then the index is behind.
        if (workers[i].seq() != index.Predict(WorkerIndex(i), 0).event_seq) continue;
        ++exact;
        ASSERT_EQ(view.workers[i].cached_tokens, Truth(workers[i], chain, 60)) << "seed " << seed;
      }
      index.CheckInvariants();
    }
    ASSERT_GT(exact, 1500) << "seed " << seed;
    ASSERT_GT(index.counters().became_stale, 0u);
  }
}

TEST_F(CacheIndexTest, AsksFewAtATimeAndLaterAfterEachFailure) {
  std::vector<ModelWorker> workers;
  for (uint32_t i = 0; i < 10; ++i) workers.emplace_back(i, std::vector<uint32_t>{0});
  for (uint32_t i = 0; i < 10; ++i) Attach(workers[i], i);
  int asked = 0;
  while (index_.NextAsk(now_)) ++asked;
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(index_.counters().snapshots_delayed, 6u) << "each is counted once";
  Micros last_wait = 0;
  for (int failure = 0; failure < 6; ++failure) {
    StepFrame step = workers[0].Step();
    step.events_dropped = true;
    index_.Stepped(WorkerIndex(0), step, now_);
    ASSERT_EQ(index_.state(WorkerIndex(0)), CacheState::kStale);
    for (uint32_t i = 1; i < 10; ++i) index_.Lost(WorkerIndex(i));
    const Micros begin = now_;
    while (!index_.NextAsk(now_)) now_ += 1000;
    const Micros wait = now_ - begin;
    EXPECT_GE(wait, (CacheIndex::kFirstRetry << failure) / 2);
    EXPECT_LE(wait, (CacheIndex::kFirstRetry << failure) + 1000);
    EXPECT_GT(wait, last_wait / 2);
    last_wait = wait;
  }
  workers[0].SendSnapshot(index_, 7);
  EXPECT_EQ(index_.state(WorkerIndex(0)), CacheState::kExact);
}

TEST_F(CacheIndexTest, ASnapshotThatNeverEndsIsAskedForAgain) {
  ModelWorker worker(0, {0});
  Attach(worker, 0);
  ASSERT_TRUE(index_.NextAsk(now_));
  now_ += CacheIndex::kSnapshotTimeout;
  index_.Stepped(WorkerIndex(0), worker.Step(), now_);
  EXPECT_EQ(index_.state(WorkerIndex(0)), CacheState::kSyncing);
  index_.Stepped(WorkerIndex(0), worker.Step(), ++now_);
  EXPECT_EQ(index_.state(WorkerIndex(0)), CacheState::kStale);
  // Parts of the old answer are late.
  index_.Snapshot(WorkerIndex(0), {1, 0, {}, true}, now_);
  EXPECT_EQ(index_.state(WorkerIndex(0)), CacheState::kStale);
}

TEST_F(CacheIndexTest, WorkersThatCannotBeFollowedCountAsEmpty) {
  for (int what = 0; what < 5; ++what) {
    WorkerHello hello = ModelWorker(0, {0}).Hello();
    if (what == 0) hello.features.clear();
    if (what == 1) hello.prefix_caching = false;
    if (what == 2) hello.hash_scheme = "crc32";
    if (what == 3) hello.block_size = 0;
    if (what == 4) hello.cache_groups.clear();
    index_.Greeted(WorkerIndex(0), hello, now_);
    EXPECT_EQ(index_.state(WorkerIndex(0)), CacheState::kNone);
    EXPECT_FALSE(index_.NextAsk(now_));
  }
}

TEST_F(CacheIndexTest, AnUnknownKindOrAWrongSequenceMakesItStale) {
  for (int what = 0; what < 3; ++what) {
    CacheIndex index(16u << 20, 4, rng_);
    ModelWorker worker(0, {0});
    index.Greeted(WorkerIndex(0), worker.Hello(), now_);
    const auto ask = index.NextAsk(now_);
    ASSERT_TRUE(ask);
    worker.SendSnapshot(index, ask->number);
    worker.Store(0, 5);
    index.Stepped(WorkerIndex(0), worker.Step(), now_);
    ASSERT_EQ(index.state(WorkerIndex(0)), CacheState::kExact);
    worker.Store(0, 6);
    StepFrame step = worker.Step();
    if (what == 0) step.events[0].cache_kind = 1;
    if (what == 1) step.event_seq += 1;
    if (what == 2) step.first_event_seq += 1;
    index.Stepped(WorkerIndex(0), step, now_);
    EXPECT_EQ(index.state(WorkerIndex(0)), CacheState::kStale);
    EXPECT_EQ(index.counters().became_stale, 1u);
  }
}

TEST_F(CacheIndexTest, AWorkerPastTheMemoryLimitCountsAsEmptyAndOthersGoOn) {
  CacheIndex index(2048 * HolderTable::kSlotBytes, 4, rng_);
  std::vector<ModelWorker> workers;
  for (uint32_t i = 0; i < 2; ++i) workers.emplace_back(i, std::vector<uint32_t>{0});
  for (uint32_t i = 0; i < 2; ++i) index.Greeted(WorkerIndex(i), workers[i].Hello(), now_);
  while (const auto ask = index.NextAsk(now_)) {
    workers[ask->worker.value()].SendSnapshot(index, ask->number);
  }
  std::vector<TokenId> prompt(20, 1);
  PromptChains chains("m", "", "", prompt, {});
  for (const uint64_t hash : chains.For("n", kBlock)) workers[0].Store(0, hash);
  for (uint64_t hash = 100; hash < 2200; ++hash) workers[1].Store(0, hash);
  for (uint32_t i = 0; i < 2; ++i) index.Stepped(WorkerIndex(i), workers[i].Step(), now_);
  EXPECT_EQ(index.state(WorkerIndex(0)), CacheState::kExact);
  EXPECT_EQ(index.state(WorkerIndex(1)), CacheState::kOverLimit);
  EXPECT_EQ(index.counters().over_limit, 1u);
  FleetView view = ViewOf(2);
  index.Score(view.workers, chains);
  EXPECT_EQ(view.workers[0].cached_tokens, 16u);
  EXPECT_EQ(view.workers[1].cached_tokens, 0u);
  index.CheckInvariants();
}

TEST_F(CacheIndexTest, TellsARaceFromAnError) {
  std::vector<ModelWorker> workers;
  workers.emplace_back(0, std::vector<uint32_t>{0});
  Attach(workers[0], 0);
  AnswerAsks(workers);
  std::vector<TokenId> prompt(21, 1);
  PromptChains chains("m", "", "", prompt, {});
  const std::vector<uint64_t> chain = chains.For("n", kBlock);
  const WorkerIndex worker(0);
  for (int i = 0; i < 3; ++i) workers[0].Store(0, chain[static_cast<size_t>(i)]);
  index_.Stepped(worker, workers[0].Step(), now_);
  FleetView view = ViewOf(1);
  index_.Score(view.workers, chains);
  ASSERT_EQ(view.workers[0].cached_tokens, 12u);
  const CachePrediction seen = index_.Predict(worker, 12);
  ASSERT_TRUE(seen.made);
  EXPECT_EQ(index_.Judge(worker, seen, chains, 12, workers[0].seq()), CacheVerdict::kExact);
  // Nothing happened, and yet it found something else.
  EXPECT_EQ(index_.Judge(worker, seen, chains, 16, workers[0].seq()), CacheVerdict::kWrong);
  // Events of other chains explain nothing.
  workers[0].Store(0, 12345);
  index_.Stepped(worker, workers[0].Step(), now_);
  EXPECT_EQ(index_.Judge(worker, seen, chains, 16, workers[0].seq()), CacheVerdict::kWrong);
  // One of this chain before the look-up does, one after it does not.
  workers[0].Store(0, chain[3]);
  index_.Stepped(worker, workers[0].Step(), now_);
  EXPECT_EQ(index_.Judge(worker, seen, chains, 16, workers[0].seq()), CacheVerdict::kRaced);
  EXPECT_EQ(index_.Judge(worker, seen, chains, 16, workers[0].seq() - 1), CacheVerdict::kWrong);
  EXPECT_EQ(index_.Judge(worker, CachePrediction{}, chains, 16, 0), CacheVerdict::kUnknown);
  // A new epoch forgives everything that was thought of the old one.
  Attach(workers[0], 0);
  EXPECT_EQ(index_.Judge(worker, seen, chains, 0, 0), CacheVerdict::kRaced);
  EXPECT_EQ(index_.counters().predictions_exact, 1u);
  EXPECT_EQ(index_.counters().predictions_wrong, 3u);
  EXPECT_EQ(index_.counters().predictions_raced, 2u);
}

TEST(PromptChains, OutputsGoOnWhereThePromptEnds) {
  const std::vector<TokenId> all = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  PromptChains whole("m", "a", "s", all, {});
  for (size_t cut = 1; cut <= all.size(); ++cut) {
    const std::span<const TokenId> tokens(all);
    PromptChains split("m", "a", "s", tokens.first(cut), tokens.subspan(cut));
    EXPECT_EQ(split.For("n", kBlock), whole.For("n", kBlock)) << cut;
  }
  PromptChains other("m", "a", "t", all, {});
  EXPECT_NE(other.For("n", kBlock), whole.For("n", kBlock));
  EXPECT_NE(whole.For("o", kBlock), whole.For("n", kBlock));
  EXPECT_EQ(whole.For("n", kBlock).size(), 3u);
}

}  // namespace
}  // namespace quire
