// What is found was computed from the same tokens under the same root; what is told (events,
// snapshots) is what can be found; ends of chains go before their beginnings.
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "worker/kv/kv_cache.h"

namespace quire {
namespace {

using Tokens = std::vector<TokenId>;

CacheIdentity Identity(const std::string& salt) { return {salt, RootHash("m", "n", "", salt)}; }

// A cache with sequences on it, held against what each block was filled with.
class Bench {
 public:
  explicit Bench(const CacheShape& shape, uint64_t hash_mask = ~uint64_t{0})
      : shape_(shape),
        cache_({.shape = shape,
                .prefix_caching = true,
                .hash_mask = hash_mask,
                .on_page_freed = [this](int32_t page) { content_.erase(page); }}) {}

  struct Running {
    std::string salt;
    Tokens tokens;
    int64_t computed = 0;
    PrefixChain chain;
    SequenceBlocks blocks;
  };

  Running& Start(Tokens tokens, const std::string& salt = "") {
    Running& sequence = *running_.emplace_back(std::make_unique<Running>());
    sequence.salt = salt;
    sequence.tokens = std::move(tokens);
    cache_.Open(sequence.chain, Identity(salt));
    return sequence;
  }
  // Looks the sequence up and takes what there is; the tokens found.
  int64_t Admit(Running& sequence) {
    const CacheHit hit = cache_.Lookup(sequence.chain, sequence.tokens);
    if (exact_) {
      EXPECT_EQ(hit.length, Foretold(sequence));
    }
    cache_.Adopt(sequence.chain, hit, sequence.blocks);
    sequence.computed = hit.length;
    for (size_t kind = 0; kind < sequence.blocks.kinds.size(); ++kind) {
      const KindBlocks& table = sequence.blocks.kinds[kind];
      for (size_t i = static_cast<size_t>(table.first_live); i < table.blocks.size(); ++i) {
        EXPECT_EQ(content_.at(table.blocks[i].value()), ContentOf(sequence, i));
      }
    }
    return hit.length;
  }
  // False when the pages are lacking.
  bool ComputeTo(Running& sequence, int64_t length) {
    if (!cache_.Extend(sequence.blocks, length)) return false;
    sequence.computed = length;
    for (const KindBlocks& table : sequence.blocks.kinds) {
      for (size_t i = static_cast<size_t>(table.first_live); i < table.blocks.size(); ++i) {
        if (static_cast<int64_t>(i + 1) * shape_.block_size > length) continue;
        content_[table.blocks[i].value()] = ContentOf(sequence, i);
      }
    }
    cache_.Publish(sequence.chain, sequence.blocks, sequence.tokens, length);
    cache_.FreeBehindWindow(sequence.blocks, length);
    return true;
  }
  void Preempt(Running& sequence) {
    cache_.Release(sequence.blocks);
    cache_.Rewind(sequence.chain);
    sequence.computed = 0;
  }
  void End(Running& sequence) {
    cache_.Release(sequence.blocks);
    cache_.Close(sequence.chain);
    std::erase_if(running_, [&](const auto& entry) { return entry.get() == &sequence; });
  }
  // All at once.
  int64_t Serve(const Tokens& tokens, const std::string& salt = "") {
    Running& sequence = Start(tokens, salt);
    const int64_t found = Admit(sequence);
    EXPECT_TRUE(ComputeTo(sequence, static_cast<int64_t>(tokens.size())));
    End(sequence);
    Check();
    return found;
  }

  // Applies the events since the last call to what a router would know.
  void TakeEvents() {
    const uint64_t first = cache_.events().first_seq();
    std::vector<CacheEvents> events;
    cache_.events().Take(events);
    if (!events.empty()) {
      EXPECT_EQ(first, seen_seq_ + 1);
    }
    seen_seq_ += events.size();
    EXPECT_EQ(seen_seq_, cache_.events().Seq());
    for (const CacheEvents& event : events) {
      std::set<uint64_t>& known = known_[event.cache_kind];
      uint64_t parent = event.parent;
      for (uint64_t hash : event.hashes) {
        if (event.kind == CacheEvents::Kind::kStored) {
          EXPECT_TRUE(known.insert(hash).second) << "stored twice";
          parent_of_[hash] = parent;
          parent = hash;
        } else {
          EXPECT_EQ(known.erase(hash), 1u) << "removed and not stored";
        }
      }
      if (event.kind == CacheEvents::Kind::kCleared) known.clear();
    }
  }
  // By the one rule, from what the events told.
  int64_t Foretold(const Running& sequence) {
    TakeEvents();
    std::vector<CacheKind> kinds;
    for (const CacheKindShape& kind : shape_.kinds) kinds.push_back({kind.window});
    BlockHash hash = RootHash("m", "n", "", sequence.salt);
    std::vector<uint64_t> hashes;
    const size_t size = static_cast<size_t>(shape_.block_size);
    for (size_t at = 0; at + size <= sequence.tokens.size(); at += size) {
      hash = HashBlock(hash, std::span(sequence.tokens).subspan(at, size));
      hashes.push_back(hash.low);
    }
    return CachedPrefix(
        kinds, shape_.block_size, static_cast<int64_t>(sequence.tokens.size()),
        [&](int kind, int64_t block) {
          return known_[static_cast<uint32_t>(kind)].contains(hashes[static_cast<size_t>(block)]);
        });
  }
  // The full kind's blocks are closed under taking the parent.
  bool PrefixClosed() {
    TakeEvents();
    const std::set<uint64_t>& known = known_[0];
    for (uint64_t hash : known) {
      const uint64_t parent = parent_of_.at(hash);
      if (!known.contains(parent) && parent_of_.contains(parent)) return false;
    }
    return true;
  }
  void Check() const {
    std::vector<const SequenceBlocks*> tables;
    for (const auto& sequence : running_) tables.push_back(&sequence->blocks);
    cache_.CheckInvariants(tables);
    EXPECT_EQ(cache_.pool().free() + cache_.pool().evictable() + cache_.pool().held(),
              shape_.page_count);
  }

  KvCache& cache() { return cache_; }
  std::vector<std::unique_ptr<Running>>& running() { return running_; }
  std::map<uint32_t, std::set<uint64_t>>& known() { return known_; }
  void NotExact() { exact_ = false; }  // hashes collide: what events foretell is too much

 private:
  std::pair<std::string, Tokens> ContentOf(const Running& sequence, size_t block) const {
    const size_t end = (block + 1) * static_cast<size_t>(shape_.block_size);
    return {sequence.salt,
            Tokens(sequence.tokens.begin(), sequence.tokens.begin() + static_cast<ptrdiff_t>(end))};
  }

  CacheShape shape_;
  std::map<int32_t, std::pair<std::string, Tokens>> content_;  // by first page
  KvCache cache_;
  std::vector<std::unique_ptr<Running>> running_;
  std::map<uint32_t, std::set<uint64_t>> known_;
  std::map<uint64_t, uint64_t> parent_of_;
  uint64_t seen_seq_ = 0;
  bool exact_ = true;
};

Tokens Count(TokenId first, size_t length) {
  Tokens tokens(length);
  for (TokenId& token : tokens) token = first++;
  return tokens;
}

CacheShape FullOnly(int64_t pages) {
  return {.block_size = 4, .page_count = pages, .kinds = {{0, 1}}};
}
CacheShape Gemma(int64_t pages) {
  return {.block_size = 4, .page_count = pages, .kinds = {{0, 1}, {10, 5}}};
}

TEST(PrefixCacheTest, FindsFullBlocksAndNeverTheLastToken) {
  Bench bench(FullOnly(100));
  const Tokens prompt = Count(1, 18);
  EXPECT_EQ(bench.Serve(prompt), 0);
  EXPECT_EQ(bench.Serve(prompt), 16);
  EXPECT_EQ(bench.Serve(Count(1, 16)), 12) << "the last token is always computed";
  EXPECT_EQ(bench.Serve(Count(1, 40)), 16);
  Tokens other = Count(1, 18);
  other[6] = 0;
  EXPECT_EQ(bench.Serve(other), 4) << "up to the block that differs";
  EXPECT_EQ(bench.Serve(prompt, "salt"), 0) << "another root";
  EXPECT_EQ(bench.Serve(prompt, "salt"), 16);
}

// The same tokens further along are another block: their parent differs.
TEST(PrefixCacheTest, ABlockIsItsTokensBehindItsParent) {
  Bench bench(FullOnly(100));
  Tokens twice = Count(1, 4);
  twice.insert(twice.end(), twice.begin(), twice.begin() + 4);
  twice.push_back(9);
  EXPECT_EQ(bench.Serve(Count(1, 5)), 0);
  EXPECT_EQ(bench.Serve(twice), 4);
  EXPECT_EQ(bench.Serve(twice), 8);
}

TEST(PrefixCacheTest, AWindowNeedsOnlyWhatItSees) {
  Bench bench(Gemma(200));
  const Tokens prompt = Count(1, 61);
  EXPECT_EQ(bench.Serve(prompt), 0);
  // The window's blocks that the first run left behind are still there.
  Bench::Running& again = bench.Start(prompt);
  EXPECT_EQ(bench.Admit(again), 60);
  EXPECT_EQ(again.blocks.kinds[1].first_live, (60 - 10 + 1) / 4);
  EXPECT_EQ(bench.cache().pool().held(), 15 + 3 * 5);
  bench.Check();
  bench.End(again);
}

TEST(PrefixCacheTest, BlocksBehindTheWindowGoFirstAndShortenNoOtherHit) {
  Bench bench(Gemma(15 + 5 * 15 + 6));
  const Tokens prompt = Count(1, 60);
  EXPECT_EQ(bench.Serve(prompt), 0);
  Tokens longer = Count(1, 64);
  // Three blocks' worth of pages of another prompt take the places of blocks behind the window.
  EXPECT_EQ(bench.Serve(Count(1000, 12)), 0);
  Bench::Running& again = bench.Start(longer);
  EXPECT_EQ(bench.Admit(again), 60);
  bench.End(again);
  EXPECT_GT(bench.cache().totals().evicted_blocks, 0u);
  // A prompt that ends early in the first one would see evicted blocks: less of it is found.
  bench.TakeEvents();
  Bench::Running& early = bench.Start(Count(1, 14));
  EXPECT_LT(bench.Admit(early), 12);
  bench.End(early);
}

TEST(PrefixCacheTest, EvictionTakesEndsFirstAndTheLeastRecentChain) {
  Bench bench(FullOnly(12));
  const Tokens a = Count(100, 17), b = Count(200, 17);
  bench.Serve(a);  // four full blocks each
  bench.Serve(b);
  bench.Serve(a);  // used again: b is older
  EXPECT_EQ(bench.cache().pool().evictable(), 8);
  EXPECT_TRUE(bench.PrefixClosed());
  bench.Serve(Count(300, 23));  // six pages, four are free
  EXPECT_TRUE(bench.PrefixClosed());
  Bench::Running& seen = bench.Start(b);
  EXPECT_EQ(bench.Admit(seen), 8) << "two blocks from the end of b are gone";
  bench.End(seen);
  Bench::Running& whole = bench.Start(a);
  EXPECT_EQ(bench.Admit(whole), 16);
  bench.End(whole);
}

// Two compute the same at once: one's blocks are published, the other's chain goes on behind them.
TEST(PrefixCacheTest, TwoThatComputeTheSameShareOnePublication) {
  Bench bench(FullOnly(40));
  Bench::Running& first = bench.Start(Count(1, 8));
  Bench::Running& second = bench.Start(Count(1, 20));
  bench.Admit(first);
  bench.Admit(second);
  ASSERT_TRUE(bench.ComputeTo(first, 8));
  ASSERT_TRUE(bench.ComputeTo(second, 20));
  bench.Check();
  EXPECT_EQ(bench.cache().totals().stored_blocks, 5u);
  EXPECT_EQ(bench.cache().pool().held(), 7);
  bench.End(first);
  bench.End(second);
  EXPECT_EQ(bench.cache().pool().evictable(), 5) << "the second's copies are free again";
  EXPECT_EQ(bench.Serve(Count(1, 21)), 20);
}

TEST(PrefixCacheTest, ClearingForgetsEverythingAndTellsSo) {
  Bench bench(Gemma(100));
  Bench::Running& running = bench.Start(Count(50, 20));
  bench.Serve(Count(1, 20));
  bench.Admit(running);
  ASSERT_TRUE(bench.ComputeTo(running, 12));
  bench.cache().Clear();
  bench.TakeEvents();
  EXPECT_TRUE(bench.known()[0].empty() && bench.known()[1].empty());
  EXPECT_EQ(bench.cache().pool().evictable(), 0);
  bench.Check();
  EXPECT_EQ(bench.Serve(Count(1, 20)), 0);
  bench.End(running);
  bench.Check();
}

// Without a free node nothing is published, and old blocks make way.
TEST(PrefixCacheTest, AFullIndexStopsNothing) {
  // Sliding only: of every long chain the blocks behind the window are evicted, their nodes stay.
  Bench bench({.block_size = 1, .page_count = 40, .kinds = {{8, 1}}});
  for (TokenId round = 0; round < 30; ++round) {
    Bench::Running& sequence = bench.Start(Count(1 + 1000 * round, 100));
    bench.Admit(sequence);
    for (int64_t length = 10; length <= 100; length += 10) {
      ASSERT_TRUE(bench.ComputeTo(sequence, length));
      bench.Check();
    }
    bench.End(sequence);
  }
  EXPECT_EQ(bench.Serve(Count(29001, 100)), 99);
}

struct RandomCase {
  CacheShape shape;
  uint64_t hash_mask;
};

class RandomPrefixCache : public testing::TestWithParam<int> {};

// Random sequences over few prompts, under memory pressure: every hit is what the events foretell
// and holds what it should.
TEST_P(RandomPrefixCache, HitsAreForetoldAndTrue) {
  const RandomCase cases[] = {
      {FullOnly(30), ~uint64_t{0}},
      {Gemma(120), ~uint64_t{0}},
      {{.block_size = 2, .page_count = 40, .kinds = {{7, 1}}}, ~uint64_t{0}},
      {FullOnly(30), 0xFF},
      {Gemma(120), 0xFF},
      {{.block_size = 1, .page_count = 70, .kinds = {{0, 1}}}, 0xFF}};
  const RandomCase& shape = cases[GetParam()];
  std::mt19937_64 random(static_cast<uint64_t>(GetParam()) + 1);
  Bench bench(shape.shape, shape.hash_mask);
  if (shape.hash_mask != ~uint64_t{0}) bench.NotExact();
  int64_t found = 0;
  for (int round = 0; round < 4000 && !testing::Test::HasFailure(); ++round) {
    auto& running = bench.running();
    const uint64_t what = random() % 8;
    if (running.size() < 4 && what < 3) {
      Tokens tokens = Count(static_cast<TokenId>(random() % 3), 1 + random() % 50);
      if (random() % 2 == 0) tokens.back() = static_cast<TokenId>(random() % 5);
      bench.Admit(bench.Start(std::move(tokens), random() % 4 == 0 ? "salt" : ""));
      found += running.back()->computed;
    } else if (!running.empty()) {
      Bench::Running& sequence = *running[random() % running.size()];
      const int64_t left = static_cast<int64_t>(sequence.tokens.size()) - sequence.computed;
      const int64_t chunk = std::min<int64_t>(left, 1 + static_cast<int64_t>(random() % 12));
      if (left == 0 || what == 7) {
        bench.End(sequence);
      } else if (what == 6 || !bench.ComputeTo(sequence, sequence.computed + chunk)) {
        bench.Preempt(sequence);
        found += bench.Admit(sequence);
      }
    }
    bench.Check();
    bench.TakeEvents();
  }
  EXPECT_GT(found, 1000);
  EXPECT_GT(bench.cache().totals().evicted_blocks, 50u);
  if (shape.hash_mask != ~uint64_t{0}) {
    EXPECT_GT(bench.cache().totals().unpublished_chains, 0u);
  }
  // A snapshot says the same as all events.
  std::map<uint32_t, std::set<uint64_t>> told;
  for (NodeId at = 0; at != kNoNode;) {
    at = bench.cache().Scan(at, 7, [&](int32_t kind, uint64_t hash, uint64_t) {
      EXPECT_TRUE(told[static_cast<uint32_t>(kind)].insert(hash).second);
    });
  }
  std::erase_if(bench.known(), [](const auto& entry) { return entry.second.empty(); });
  EXPECT_EQ(told, bench.known());
  while (!bench.running().empty()) bench.End(*bench.running().back());
  bench.Check();
  EXPECT_EQ(bench.cache().pool().held(), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RandomPrefixCache, testing::Range(0, 6));

TEST(PrefixCacheDeathTest, ABlockThatIsPublishedTwiceDies) {
  BlockPool pool(2, nullptr);
  const BlockId block = *pool.Allocate(1);
  pool.Publish(block, 0, 0);
  EXPECT_DEATH(pool.Publish(block, 1, 0), "published twice");
  pool.Release(block);
  pool.Withdraw(block);
  EXPECT_DEATH(pool.Publish(block, 0, 0), "nobody has written");
}

}  // namespace
}  // namespace quire
