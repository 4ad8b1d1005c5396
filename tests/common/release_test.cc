#include "common/release.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire {
namespace {

TEST(Release, GivesBackWhatAnAssignmentKeeps) {
  std::string text(1 << 20, 'x');
  text = {};
  EXPECT_GE(text.capacity(), size_t{1} << 20) << "it would do without Release";
  Release(text);
  EXPECT_LT(text.capacity(), 64u);
  std::vector<int> numbers(1 << 20);
  Release(numbers);
  EXPECT_EQ(numbers.capacity(), 0u);
  Release(numbers);
  EXPECT_TRUE(numbers.empty());
}

}  // namespace
}  // namespace quire
