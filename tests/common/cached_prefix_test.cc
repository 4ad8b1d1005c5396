#include "common/cached_prefix.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

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
