#include "common/number_table.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

namespace quire {
namespace {

// Random calls beside a map that does the same; elements stay where they are.
TEST(NumberTable, DoesWhatAMapDoes) {
  std::mt19937_64 rng(3);
  NumberTable<uint64_t, std::unique_ptr<int>> table;
  std::map<uint64_t, int*> expected;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t key = rng() % 300;
    if (rng() % 2 == 0) {
      const auto [at, inserted] = table.try_emplace(key, std::make_unique<int>(i));
      ASSERT_EQ(inserted, expected.try_emplace(key, at->second.get()).second);
    } else if (rng() % 2 == 0) {
      ASSERT_EQ(table.erase(key), expected.erase(key));
    } else if (const auto at = table.find(key); at != table.end()) {
      table.erase(at);
      ASSERT_EQ(expected.erase(key), 1u);
    }
    const auto found = table.find(key);
    ASSERT_EQ(found != table.end(), expected.contains(key));
    ASSERT_EQ(table.contains(key), expected.contains(key));
    ASSERT_TRUE(found == table.end() || found->second.get() == expected.at(key));
    ASSERT_EQ(table.size(), expected.size());
  }
  auto next = expected.begin();
  for (const auto& [key, value] : table) {
    ASSERT_EQ(key, next->first);
    ASSERT_EQ(value.get(), (next++)->second);
  }
  EXPECT_EQ(next, expected.end());
  EXPECT_EQ(table.rbegin()->first, expected.rbegin()->first);
}

}  // namespace
}  // namespace quire
