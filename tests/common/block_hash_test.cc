#include "common/block_hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

TEST(BlockHash, DependsOnParentTokensAndEveryFieldOfTheRoot) {
  const BlockHash root = RootHash("model", "numerics", "", "");
  EXPECT_NE(root, RootHash("modelnumerics", "", "", ""));
  EXPECT_NE(root, RootHash("model", "numerics", "adapter", ""));
  EXPECT_NE(root, RootHash("model", "numerics", "", "salt"));
  const std::vector<TokenId> a = {1, 2, 3}, b = {1, 2, 4};
  EXPECT_EQ(HashBlock(root, a), HashBlock(root, a));
  EXPECT_NE(HashBlock(root, a), HashBlock(root, b));
  EXPECT_NE(HashBlock(root, a), HashBlock(HashBlock(root, a), a));
}

// Router and worker of different releases must agree: these values never change.
TEST(BlockHash, KnownAnswers) {
  const BlockHash root = RootHash("m", "n", "a", "s");
  const std::vector<TokenId> tokens = {0, 1, 2, 3};
  const BlockHash block = HashBlock(root, tokens);
  EXPECT_EQ(root, (BlockHash{0x8617171f70298b2bull, 0x5dad6a3a24a11f24ull}));
  EXPECT_EQ(block, (BlockHash{0x3a8e307be0805eddull, 0x30cb3ac31b8285ccull}));
}

}  // namespace
}  // namespace quire
