// Blocks that Quire writes: they read back as the values that went in, within what their bits
// allow.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/encode/encode.h"
#include "kernels/expand.h"
#include "kernels/gguf_blocks.h"

namespace quire::kernels {
namespace {

constexpr DType kEncoded[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ5_0, DType::kQ5_1,
                              DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

std::vector<std::byte> Encode(DType type, std::span<const float> values) {
  const auto blocks = static_cast<int>(values.size()) / BlockElements(type);
  std::vector<std::byte> bytes(static_cast<size_t>(blocks * BlockBytes(type)), std::byte{0xff});
  EncodeRow(type, values, bytes.data());
  return bytes;
}

std::vector<float> Decode(DType type, const std::vector<std::byte>& bytes, size_t count) {
  std::vector<float> values(count);
  ExpandRow({.type = type, .rows = 1, .cols = static_cast<int64_t>(count), .data = bytes.data()}, 0,
            values);
  return values;
}

std::vector<float> ReadBack(DType type, std::span<const float> values) {
  return Decode(type, Encode(type, values), values.size());
}

double Loss(std::span<const float> values, std::span<const float> read) {
  double misses = 0.0, squares = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    misses += std::pow(static_cast<double>(values[i]) - static_cast<double>(read[i]), 2);
    squares += std::pow(static_cast<double>(values[i]), 2);
  }
  return std::sqrt(misses / squares);
}

std::vector<float> Normal(size_t count, uint32_t seed, float mean = 0.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(mean, 0.02f);
  std::vector<float> values(count);
  for (float& value : values) value = draw(random);
  return values;
}

// Each bound is 2 % above the measured loss: a worse search, or a code that is read back wrong, is
// beyond it.
TEST(Encode, LosesAboutWhatItsBitsAllow) {
  const std::vector<float> values = Normal(65'536, 1);
  const std::vector<std::pair<DType, double>> bounds = {
      {DType::kQ8_0, 0.00546}, {DType::kQ4_0, 0.0859}, {DType::kQ5_0, 0.0420},
      {DType::kQ5_1, 0.0346},  {DType::kQ4_K, 0.0730}, {DType::kQ5_K, 0.0366},
      {DType::kQ6_K, 0.0181}};
  for (const auto& [type, most] : bounds) {
    const double loss = Loss(values, ReadBack(type, values));
    EXPECT_LT(loss, most) << DTypeName(type);
  }
}

TEST(Encode, SearchingBeatsTheScaleOfTheLargestValue) {
  const std::vector<float> values = Normal(8'192, 2);
  // Q4_0 with the scale that maps the largest value of each block to −8.
  std::vector<float> plain(values.size());
  for (size_t at = 0; at < values.size(); at += 32) {
    float largest = 0.0f;
    for (size_t i = at; i < at + 32; ++i) {
      if (std::abs(values[i]) > std::abs(largest)) largest = values[i];
    }
    const float scale = largest / -8.0f;
    for (size_t i = at; i < at + 32; ++i) {
      plain[i] = scale * std::fmin(7.0f, std::fmax(-8.0f, std::round(values[i] / scale)));
    }
  }
  EXPECT_LT(Loss(values, ReadBack(DType::kQ4_0, values)), 0.98 * Loss(values, plain));
}

TEST(Encode, WhatAFormatHoldsExactlyComesBackExactly) {
  for (const DType type : kEncoded) {
    const auto count = static_cast<size_t>(BlockElements(type));
    // Zeros, and one value in each place, for a power of two: its scale is a half.
    EXPECT_EQ(ReadBack(type, std::vector<float>(count)), std::vector<float>(count));
    for (size_t i = 0; i < count; i += 7) {
      std::vector<float> one(count);
      one[i] = i % 2 == 0 ? 1.0f : -1.0f;
      const std::vector<float> read = ReadBack(type, one);
      for (size_t j = 0; j < count; ++j) {
        EXPECT_NEAR(read[j], one[j], 0.01f) << DTypeName(type) << " " << i << " " << j;
      }
    }
  }
}

TEST(Encode, AGroupFarFromZeroKeepsItsMinimum) {
  for (const DType type : {DType::kQ4_K, DType::kQ5_K, DType::kQ5_1}) {
    const std::vector<float> below = Normal(2'048, 3, -1.0f);
    EXPECT_LT(Loss(below, ReadBack(type, below)), 0.01) << DTypeName(type);
    // A minimum of these formats is never above zero: such groups take their whole range.
    const std::vector<float> above = Normal(2'048, 4, 1.0f);
    EXPECT_LT(Loss(above, ReadBack(type, above)), 0.04) << DTypeName(type);
  }
}

TEST(Encode, GroupsOfOneBlockHaveScalesOfTheirOwn) {
  for (const DType type : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    std::vector<float> values = Normal(256, 5);
    for (size_t i = 0; i < 256; ++i) values[i] *= static_cast<float>(1 + i / 32);
    for (size_t group = 0; group < 8; ++group) {
      const std::vector<float> read = ReadBack(type, values);
      const std::span<const float> part(values.data() + 32 * group, 32);
      EXPECT_LT(Loss(part, std::span(read).subspan(32 * group, 32)), 0.12)
          << DTypeName(type) << " group " << group;
    }
  }
}

TEST(Encode, TinyAndLargeValuesStayFinite) {
  for (const DType type : kEncoded) {
    const auto count = static_cast<size_t>(BlockElements(type));
    for (const float size : {1e-38f, 1e-20f, 1e-6f, 60'000.0f}) {
      std::vector<float> values = Normal(count, 6);
      for (float& value : values) value *= 20.0f * size;
      for (const float value : ReadBack(type, values)) {
        EXPECT_TRUE(std::isfinite(value)) << DTypeName(type) << " " << size;
        EXPECT_LE(std::abs(value), 8.0f * size) << DTypeName(type);
      }
    }
  }
}

}  // namespace
}  // namespace quire::kernels
