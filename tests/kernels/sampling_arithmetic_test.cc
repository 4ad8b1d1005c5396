// The arithmetic of sampling against published vectors and the C library in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/sampling/arithmetic.h"

namespace quire::kernels::sampling {
namespace {

void ExpectWords(const PhiloxBlock& got, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  EXPECT_EQ(got.word[0], a);
  EXPECT_EQ(got.word[1], b);
  EXPECT_EQ(got.word[2], c);
  EXPECT_EQ(got.word[3], d);
}

// Known answers of the authors' Random123 library.
TEST(Philox, KnownAnswers) {
  ExpectWords(Philox({{0, 0, 0, 0}}, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  ExpectWords(Philox({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u), 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
              0x6d5451fd);
  ExpectWords(Philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
              0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Exp, WithinTwoUnitsInTheLastPlace) {
  for (float x = -87.0f; x <= 0.0f; x += 0.00173f) {
    const double wanted = std::exp(static_cast<double>(x));
    EXPECT_NEAR(ExpOfNegative(x) / wanted, 1.0, 2.4e-7) << x;
  }
  EXPECT_EQ(ExpOfNegative(0.0f), 1.0f);
  EXPECT_EQ(ExpOfNegative(-88.0f), 0.0f);
  EXPECT_EQ(ExpOfNegative(-INFINITY), 0.0f);
}

TEST(Log, AgreesWithTheLibrary) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const int exponent = static_cast<int>(random() % 120) - 60;
    const double x =
        std::ldexp(1.0 + static_cast<double>(random() >> 12) / 4503599627370496.0, exponent);
    const double wanted = std::log(x);
    ASSERT_NEAR(Log(x), wanted, 1e-15 * std::max(1.0, std::fabs(wanted))) << x;
  }
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_LE(-Log(-Log(1.0 - std::ldexp(1.0, -53))), kLargestGumbel);
}

TEST(OrderedKey, OrdersFloats) {
  const float ascending[] = {-INFINITY, -3e38f, -1.0f, -1e-40f, 0.0f, 1e-40f, 1.0f, 2.0f, INFINITY};
  for (int i = 0; i + 1 < 9; ++i) EXPECT_LT(OrderedKey(ascending[i]), OrderedKey(ascending[i + 1]));
  EXPECT_EQ(OrderedKey(-0.0f), OrderedKey(0.0f));
}

TEST(Mass, IsTheNearestUnit) {
  EXPECT_EQ(Mass(1.0f), uint64_t{1} << 40);
  EXPECT_EQ(Mass(0.0f), 0u);
  EXPECT_EQ(Mass(std::ldexp(1.0f, -41)), 0u);
  EXPECT_EQ(Mass(std::ldexp(3.0f, -41)), 2u);
  EXPECT_EQ(ShareOf(0.5f, 5), 3u);
  EXPECT_EQ(ShareOf(1.0f, 7), 7u);
}

TEST(Penalise, FollowsTheFormulas) {
  EXPECT_EQ(Penalise(3.0f, 0, 2.0f, 1.0f, 1.0f), 1.5f);
  EXPECT_EQ(Penalise(-3.0f, 0, 2.0f, 1.0f, 1.0f), -6.0f);
  EXPECT_EQ(Penalise(3.0f, 2, 1.0f, 0.5f, 0.25f), 1.75f);
}

}  // namespace
}  // namespace quire::kernels::sampling
