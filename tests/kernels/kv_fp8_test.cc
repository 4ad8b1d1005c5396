// Numbers of eight and sixteen bits as pages hold them, each against its definition.
#include "kernels/kv_fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernels/cpu/half.h"

namespace quire::kernels {
namespace {

// Sign, exponent of bias 7 and mantissa of three bits, as the format says.
double ValueOf(int code) {
  const int exponent = code >> 3 & 15;
  const double mantissa = code & 7;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
  return (code & 0x80) != 0 ? -size : size;
}

TEST(Fp8, EveryCodeIsReadAndWrittenAsItIs) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;  // NaN, which is never written
    const float value = FromFp8(static_cast<uint8_t>(code));
    EXPECT_EQ(value, ValueOf(code)) << code;
    EXPECT_EQ(ToFp8(value), code);
  }
  EXPECT_EQ(FromFp8(0x7e), kFp8Max);
}

TEST(Fp8, RoundsToTheNearestAndTiesToTheEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const float low = FromFp8(static_cast<uint8_t>(code));
    const float high = FromFp8(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(ToFp8(middle), code + code % 2) << middle;
    EXPECT_EQ(ToFp8(std::nextafter(middle, 0.0f)), code) << middle;
    EXPECT_EQ(ToFp8(std::nextafter(middle, 1e9f)), code + 1) << middle;
    EXPECT_EQ(ToFp8(-middle), (code + code % 2) | 0x80);
  }
  EXPECT_EQ(ToFp8(448.1f), 0x7e);
  EXPECT_EQ(ToFp8(-1e30f), 0xfe);
}

TEST(Fp8, TheLargestOfAHeadIsKeptAndTheRestIsWithinASixteenth) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const float size : {1e-25f, 1e-3f, 1.0f, 7e4f, 1e30f}) {
    float x[64];
    float largest = 0;
    for (float& v : x) {
      v = normal(random) * size;
      largest = std::max(largest, std::fabs(v));
    }
    const Fp8Scale scale = Fp8ScaleOf(largest, true);
    for (const float v : x) {
      const double back = double{FromFp8(ToFp8(v * scale.inverse))} * scale.scale;
      // Half a step of three bits, or of the smallest step.
      const double allowed = std::max(std::fabs(v) / 16.0, largest / 448.0 / 1024.0) * 1.0001;
      EXPECT_LE(std::fabs(back - v), allowed) << v << " of " << largest;
    }
    EXPECT_NEAR(FromFp8(ToFp8(largest * scale.inverse)) * scale.scale / largest, 1.0, 1e-6);
  }
}

TEST(Fp8, WhatIsNotFiniteReadsAsNaNAndWhatIsNothingAsZero) {
  const Fp8Scale bad = Fp8ScaleOf(std::numeric_limits<float>::infinity(), false);
  EXPECT_TRUE(std::isnan(bad.scale));
  for (const float x : {1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const uint8_t code = ToFp8(x * bad.inverse);
    EXPECT_NE(code & 0x7f, 0x7f);
    EXPECT_TRUE(std::isnan(FromFp8(code) * bad.scale));
  }
  const Fp8Scale nothing = Fp8ScaleOf(1e-38f, true);
  EXPECT_EQ(FromFp8(ToFp8(1e-38f * nothing.inverse)) * nothing.scale, 0.0f);
}

TEST(Half, EveryValueIsKeptAndBetweenTwoTheNearestIsTaken) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = cpu::HalfToFloat(static_cast<uint16_t>(bits));
    ASSERT_EQ(cpu::FloatToHalf(low), bits);
    ASSERT_EQ(cpu::FloatToHalf(-low), bits | 0x8000);
    if (bits == 0x7bff) break;
    const float middle = (low + cpu::HalfToFloat(static_cast<uint16_t>(bits + 1))) / 2;
    ASSERT_EQ(cpu::FloatToHalf(middle), bits + bits % 2);
    ASSERT_EQ(cpu::FloatToHalf(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(cpu::FloatToHalf(std::nextafter(middle, 1e9f)), bits + 1);
  }
  EXPECT_EQ(cpu::FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(cpu::FloatToHalf(65519.9f), 0x7bff);
  EXPECT_EQ(cpu::FloatToHalf(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_GT(cpu::FloatToHalf(std::nanf("")), 0x7c00);
}

}  // namespace
}  // namespace quire::kernels
