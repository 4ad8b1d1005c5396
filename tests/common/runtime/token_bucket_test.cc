#include "common/runtime/token_bucket.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

constexpr Micros kSecond = kMicrosPerSecond;

TEST(TokenBucket, ANewRateKeepsWhatIsLeft) {
  TokenBucket bucket;
  EXPECT_EQ(bucket.WaitFor(1e9, 0), 0) << "no limit";
  bucket.SetLimit({.per_second = 1, .burst = 60}, 0);
  bucket.Take(60, 0);
  bucket.SetLimit({.per_second = 2, .burst = 120}, 0);
  EXPECT_EQ(bucket.WaitFor(1, 0), kSecond / 2);
  bucket.SetLimit({.per_second = 1.0 / 60, .burst = 1}, 200 * kSecond);
  EXPECT_EQ(bucket.WaitFor(1, 200 * kSecond), 0);
  EXPECT_TRUE(bucket.Full(200 * kSecond));
}

TEST(TokenBucket, RefusesBeyondTheBurstAndTakesNothing) {
  TokenBucket bucket({.per_second = 10, .burst = 3}, 7 * kSecond);
  EXPECT_TRUE(bucket.TryTake(3, 7 * kSecond)) << "full at the start";
  EXPECT_FALSE(bucket.TryTake(1, 7 * kSecond + kSecond / 20));
  EXPECT_TRUE(bucket.TryTake(1, 7 * kSecond + kSecond / 10)) << "the refusal took nothing";
  EXPECT_FALSE(bucket.Full(7 * kSecond + kSecond / 5));
  EXPECT_FALSE(bucket.TryTake(4, 100 * kSecond)) << "the level never exceeds the burst";
}

TEST(TokenBucket, ADebtIsWaitedForAndGoesWithTheLimit) {
  TokenBucket bucket({.per_second = 2, .burst = 4}, 0);
  bucket.Take(10, 0);
  EXPECT_EQ(bucket.WaitFor(1, 0), 7 * kSecond / 2);
  EXPECT_EQ(bucket.WaitFor(100, 0), 5 * kSecond) << "more than the burst: a full bucket";
  bucket.Take(-10, 0);
  EXPECT_TRUE(bucket.Full(0)) << "given back";
  bucket.Take(10, 0);
  bucket.SetLimit({}, 0);
  EXPECT_FALSE(bucket.limited());
  EXPECT_TRUE(bucket.TryTake(1e9, 0));
}

}  // namespace
}  // namespace quire
