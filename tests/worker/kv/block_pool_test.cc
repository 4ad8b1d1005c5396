// Pages are in one state each, blocks come and go whole, running out is a result.
#include <set>

#include <gtest/gtest.h>

#include "worker/kv/block_pool.h"
#include "worker/kv/kv_cache.h"

namespace quire {
namespace {

TEST(BlockPoolTest, ABlockIsAPagePerGroupAndAllOrNothing) {
  BlockPool pool(5, nullptr);
  const auto first = pool.Allocate(3);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(pool.held(), 3);
  EXPECT_EQ(pool.free(), 2);
  EXPECT_FALSE(pool.Allocate(3).has_value());
  EXPECT_EQ(pool.free(), 2);
  std::set<int32_t> pages;
  for (int32_t page = first->value(); page >= 0; page = pool.NextPage(page)) pages.insert(page);
  EXPECT_EQ(pages.size(), 3u);
  const auto second = pool.Allocate(2);
  ASSERT_TRUE(second.has_value());
  for (int32_t page = second->value(); page >= 0; page = pool.NextPage(page)) pages.insert(page);
  EXPECT_EQ(pages.size(), 5u);
  pool.CheckInvariants();
  pool.Release(*first);
  EXPECT_EQ(pool.free(), 3);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, TheLastReferenceFrees) {
  std::vector<int32_t> freed;
  BlockPool pool(4, [&freed](int32_t page) { freed.push_back(page); });
  const BlockId block = *pool.Allocate(2);
  pool.AddReference(block);
  EXPECT_EQ(pool.references(block), 2);
  pool.Release(block);
  EXPECT_TRUE(freed.empty());
  EXPECT_EQ(pool.held(), 2);
  pool.Release(block);
  EXPECT_EQ(freed.size(), 2u);
  EXPECT_EQ(pool.free() + pool.evictable() + pool.held(), pool.total());
  pool.CheckInvariants();
}

TEST(BlockPoolDeathTest, GivingBackTwiceDies) {
  BlockPool pool(4, nullptr);
  const BlockId block = *pool.Allocate(1);
  pool.Release(block);
  EXPECT_DEATH(pool.Release(block), "given back twice");
}

CacheShape Gemma() { return {.block_size = 4, .page_count = 60, .kinds = {{0, 1}, {10, 5}}}; }

TEST(KvCacheTest, ExtendTakesWhatTheLengthNeedsInEveryKind) {
  KvCache cache(Gemma(), nullptr);
  SequenceBlocks blocks;
  EXPECT_EQ(cache.PagesToExtend(blocks, 9), 3 * 6);
  ASSERT_TRUE(cache.Extend(blocks, 9));
  EXPECT_EQ(cache.pool().held(), 18);
  EXPECT_EQ(cache.PagesToExtend(blocks, 12), 0);
  EXPECT_EQ(cache.PagesToExtend(blocks, 13), 6);
  EXPECT_FALSE(cache.Extend(blocks, 41));  // eleven blocks would be 66 pages
  EXPECT_EQ(cache.pool().held(), 18);
  ASSERT_TRUE(cache.Extend(blocks, 40));
  EXPECT_EQ(cache.pool().free(), 0);
  const SequenceBlocks* tables[] = {&blocks};
  cache.CheckInvariants(tables);
  cache.Release(blocks);
  EXPECT_EQ(cache.pool().free(), 60);
  cache.CheckInvariants({});
}

// The next query, at position `computed`, sees [computed − 9, computed].
TEST(KvCacheTest, BlocksBehindTheWindowGoBackExactlyWhenUnseen) {
  KvCache cache(Gemma(), nullptr);
  SequenceBlocks blocks;
  ASSERT_TRUE(cache.Extend(blocks, 32));
  for (int64_t computed = 0; computed <= 32; ++computed) {
    cache.FreeBehindWindow(blocks, computed);
    const int64_t first_seen = std::max<int64_t>(0, computed - 9);
    EXPECT_EQ(blocks.kinds[1].first_live, first_seen / 4) << computed;
    EXPECT_EQ(blocks.kinds[0].first_live, 0);
    const SequenceBlocks* tables[] = {&blocks};
    cache.CheckInvariants(tables);
  }
  EXPECT_EQ(cache.pool().held(), 8 + 3 * 5);
  cache.Release(blocks);
  EXPECT_EQ(cache.pool().held(), 0);
}

TEST(KvCacheTest, PeakIsNeverExceededByChunkedPrefillAndDecode) {
  for (int64_t chunk = 1; chunk <= 20; ++chunk) {
    for (int64_t length : {1, 4, 5, 17, 39, 64, -1, -5, -39, -64}) {
      CacheShape shape = Gemma();
      if (length < 0) shape.kinds = {{0, 1}, {5, 3, static_cast<int32_t>(1 + chunk % 4)}};
      length = std::abs(length);
      shape.page_count = 1000;
      KvCache cache(shape, nullptr);
      SequenceBlocks blocks;
      int64_t peak = 0;
      for (int64_t computed = 0; computed < length;) {
        const int64_t end = std::min(length, computed + chunk);
        ASSERT_TRUE(cache.Extend(blocks, end));
        peak = std::max(peak, cache.pool().held());
        computed = end;
        cache.FreeBehindWindow(blocks, computed);
      }
      EXPECT_LE(peak, cache.PeakPages(length, chunk)) << chunk << " " << length;
    }
  }
}

// Of states a sequence holds the running one, the one at the last border, and those that it keeps.
TEST(KvCacheTest, StatesAreSparse) {
  CacheShape shape{4, 1000, {{0, 1}, {5, 3, 4}}};
  KvCache cache(shape, nullptr);
  SequenceBlocks blocks;
  blocks.branch = 12;
  ASSERT_TRUE(cache.Extend(blocks, 39));  // ten blocks; states at 12, 16, 32, 36 and 39
  const auto states = [&blocks] {
    std::vector<int> held;
    for (size_t i = 0; i < blocks.kinds[1].blocks.size(); ++i) {
      if (blocks.kinds[1].blocks[i] != kNoBlock) held.push_back(static_cast<int>(i));
    }
    return held;
  };
  EXPECT_EQ(states(), (std::vector<int>{2, 3, 7, 8, 9}));
  EXPECT_EQ(cache.pool().held(), 10 + 3 * 5);
  cache.FreeBehindWindow(blocks, 39);
  EXPECT_EQ(states(), (std::vector<int>{8, 9}));
  EXPECT_EQ(cache.PagesToExtend(blocks, 40), 0);
  EXPECT_EQ(cache.PagesToExtend(blocks, 41), 1 + 3);
  const SequenceBlocks* tables[] = {&blocks};
  cache.CheckInvariants(tables);
  // A copy of the running state, and none of the one at the border.
  SequenceBlocks fork = cache.Fork(blocks, 39);
  EXPECT_EQ(cache.PagesToOwn(fork, 39), 1 + 3);
  std::vector<PlannedCopy> copies;
  SequenceBlocks old = cache.TakeOwn(fork, 39, copies);
  EXPECT_EQ(copies.size(), 4u);
  EXPECT_EQ(cache.PagesToOwn(blocks, 39), 1 + 3) << "until the copies have been made";
  cache.Release(old);
  EXPECT_EQ(cache.PagesToOwn(blocks, 39), 0);
  cache.Release(fork);
  cache.Release(blocks);
  EXPECT_EQ(cache.pool().free(), 1000);
}

TEST(BlockPoolTest, APublishedBlockStaysUntilItsPagesAreNeeded) {
  std::vector<int32_t> freed;
  BlockPool pool(6, [&freed](int32_t page) { freed.push_back(page); });
  const BlockId a = *pool.Allocate(2), b = *pool.Allocate(2), c = *pool.Allocate(1);
  pool.Publish(a, 7, 0);
  pool.Publish(b, 8, 1);
  pool.Publish(c, 9, 1);
  pool.Release(a);
  pool.Release(b, EvictionOrder::kBehindWindow);
  pool.Release(c);
  EXPECT_TRUE(freed.empty());
  EXPECT_EQ(pool.evictable(), 5);
  EXPECT_EQ(pool.available(), 6);
  pool.CheckInvariants();
  EXPECT_EQ(pool.Oldest(), b) << "behind a window goes first";
  pool.AddReference(b);
  EXPECT_EQ(pool.held(), 2);
  EXPECT_EQ(pool.Oldest(), a);
  pool.Touch(a);
  EXPECT_EQ(pool.Oldest(), c);
  pool.Withdraw(b);  // held: stays so, and is free with its last reference
  EXPECT_TRUE(freed.empty());
  pool.Release(b);
  EXPECT_EQ(freed.size(), 2u);
  pool.Withdraw(c);
  EXPECT_EQ(pool.free(), 4);
  EXPECT_EQ(pool.node(a), 7);
  pool.Withdraw(a);
  EXPECT_EQ(pool.free(), 6);
  EXPECT_EQ(pool.Oldest(), kNoBlock);
  pool.CheckInvariants();
}

TEST(KvCacheTest, AForkSharesAllBlocksAndCopiesThePartialOneAtItsFirstWrite) {
  KvCache cache(Gemma(), nullptr);
  SequenceBlocks parent;
  std::vector<PlannedCopy> copies;
  ASSERT_TRUE(cache.Extend(parent, 18));  // five blocks, the last with two tokens
  cache.FreeBehindWindow(parent, 18);
  ASSERT_EQ(parent.kinds[1].first_live, 2);
  const int64_t held = cache.pool().held();
  SequenceBlocks child = cache.Fork(parent, 18);
  EXPECT_EQ(cache.pool().held(), held) << "shared blocks are counted once";
  EXPECT_EQ(cache.PagesToReturn(parent), 0);
  EXPECT_EQ(cache.PagesToOwn(child, 18), 6);
  SequenceBlocks shared = cache.TakeOwn(child, 18, copies);
  EXPECT_EQ(cache.pool().held(), held + 6);
  ASSERT_EQ(copies.size(), 6u);
  EXPECT_EQ(copies[0].from, parent.kinds[0].blocks[4].value());
  EXPECT_EQ(copies[0].to, child.kinds[0].blocks[4].value());
  EXPECT_EQ(copies[1].from, parent.kinds[1].blocks[4].value());
  const SequenceBlocks* tables[] = {&parent, &child, &shared};
  cache.CheckInvariants(tables);
  cache.Release(shared);
  EXPECT_EQ(cache.PagesToReturn(parent), 6);
  EXPECT_EQ(cache.PagesToOwn(child, 18), 0) << "it is its own now";
  cache.FreeBehindWindow(child, 24);
  cache.CheckInvariants(tables);
  cache.Release(parent);
  cache.CheckInvariants(tables);
  cache.Release(child);
  EXPECT_EQ(cache.pool().free(), 60);
}

TEST(KvCacheTest, TheLastHolderOfAPartialBlockWritesItInPlace) {
  KvCache cache(Gemma(), nullptr);
  SequenceBlocks parent;
  std::vector<PlannedCopy> copies;
  ASSERT_TRUE(cache.Extend(parent, 6));
  SequenceBlocks child = cache.Fork(parent, 5);
  cache.Release(parent);
  EXPECT_EQ(cache.PagesToOwn(child, 5), 0);
  EXPECT_TRUE(cache.TakeOwn(child, 5, copies).kinds.empty());
  EXPECT_TRUE(copies.empty());
  cache.Release(child);
  EXPECT_EQ(cache.pool().free(), 60);
}

TEST(KvCacheDeathTest, ALeakedReferenceIsSeen) {
  KvCache cache(Gemma(), nullptr);
  SequenceBlocks blocks;
  ASSERT_TRUE(cache.Extend(blocks, 9));
  EXPECT_DEATH(cache.CheckInvariants({}), "no sequence names");
}

}  // namespace
}  // namespace quire
