#include "common/cached_prefix.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace quire {
namespace {

// The rule as DESIGN words it, by trying every length from the longest.
int64_t ByDefinition(std::span<const CacheKind> kinds, int block_size, int64_t prompt,
                     const std::vector<std::set<int64_t>>& held) {
  for (int64_t length = (prompt - 1) / block_size * block_size; length > 0; length -= block_size) {
    bool hit = true;
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      const int window = kinds[kind].window;
      const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, length - window + 1);
      for (int64_t token = first; token < length; ++token) {
        hit = hit && held[kind].contains(token / block_size);
      }
    }
    if (hit) return length;
  }
  return 0;
}

TEST(CachedPrefix, EqualsTheDefinitionOnRandomCaches) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::vector<CacheKind> kinds;
    if (random() % 4 != 0) kinds.push_back({0});
    if (random() % 2 != 0 || kinds.empty()) kinds.push_back({static_cast<int>(random() % 40) + 1});
    const int block_size = 1 << (random() % 4);
    const int64_t prompt = random() % 80;
    std::vector<std::set<int64_t>> held(kinds.size());
    const int density = random() % 100;
    for (auto& blocks : held) {
      for (int64_t block = 0; block < 80; ++block) {
        if (static_cast<int>(random() % 100) <= density || random() % 8 != 0) blocks.insert(block);
      }
    }
    const int64_t got = CachedPrefix(kinds, block_size, prompt, [&](int kind, int64_t block) {
      return held[kind].contains(block);
    });
    ASSERT_EQ(got, ByDefinition(kinds, block_size, prompt, held)) << "round " << round;
  }
}

// What each of up to 64 caches holds, and of each kind the rows that were asked for.
struct ManyCaches {
  std::vector<std::vector<uint64_t>> rows;  // by kind and block
  std::vector<int64_t> asked;               // by kind: rows
  HolderRows Rows() {
    asked.assign(rows.size(), 0);
    return [this](int kind, int64_t first, std::span<uint64_t> out) {
      asked[kind] += static_cast<int64_t>(out.size());
      for (size_t i = 0; i < out.size(); ++i) out[i] = rows[kind].at(first + i);
    };
  }
};

TEST(CachedPrefixes, EqualTheRuleForEachCacheAlone) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 1500; ++round) {
    std::vector<CacheKind> kinds;
    for (size_t kind = 0; kind <= random() % 3; ++kind) {
      kinds.push_back({random() % 3 == 0 ? 0 : static_cast<int>(random() % 60) + 1});
    }
    const int block_size = 1 << (random() % 4);
    const int64_t prompt = static_cast<int64_t>(random() % 1200);
    const int64_t blocks = prompt > 0 ? (prompt - 1) / block_size : 0;
    const uint64_t members = random() | random();
    const uint64_t sparse = random() % 40;  // of so many rows one has holes
    ManyCaches caches;
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      std::vector<uint64_t>& rows = caches.rows.emplace_back(static_cast<size_t>(blocks));
      for (uint64_t& row : rows) row = random() % (sparse + 1) == 0 ? random() | random() : ~0ull;
    }
    const auto got = CachedPrefixes(kinds, block_size, prompt, members, caches.Rows());
    for (size_t cache = 0; cache < got.size(); ++cache) {
      const int64_t alone = CachedPrefix(kinds, block_size, prompt, [&](int kind, int64_t block) {
        return (caches.rows[kind].at(static_cast<size_t>(block)) >> cache & 1) != 0;
      });
      const bool member = (members >> cache & 1) != 0;
      ASSERT_EQ(got[cache], member ? alone : 0) << "round " << round << ", cache " << cache;
    }
  }
}

TEST(CachedPrefixes, ReadNoFurtherThanTheyMust) {
  const CacheKind kinds[] = {{0}, {64}};
  ManyCaches caches;
  caches.rows = {std::vector<uint64_t>(1000, 3), std::vector<uint64_t>(1000, 3)};
  EXPECT_EQ(CachedPrefixes(kinds, 16, 16'001, 3, caches.Rows())[1], 16'000);
  EXPECT_EQ(caches.asked[0], 1000);
  EXPECT_LE(caches.asked[1], 64);  // the window at the end, not all of the chain
  caches.rows[0].front() = 0;
  EXPECT_EQ(CachedPrefixes(kinds, 16, 16'001, 3, caches.Rows())[1], 0);
  EXPECT_LE(caches.asked[0], 8);
  EXPECT_EQ(caches.asked[1], 0);
}

TEST(CachedPrefix, NeverServesTheLastToken) {
  const CacheKind full[] = {{0}};
  const auto all = [](int, int64_t) { return true; };
  EXPECT_EQ(CachedPrefix(full, 16, 32, all), 16);
  EXPECT_EQ(CachedPrefix(full, 16, 33, all), 32);
  EXPECT_EQ(CachedPrefix(full, 16, 1, all), 0);
  EXPECT_EQ(CachedPrefix(full, 16, 0, all), 0);
}

}  // namespace
}  // namespace quire
