// Products with quantised weights: the bits of products with the expanded weights, at every number
// of rows, in bfloat16 and in float16, and the float64 meaning of the format.
#include "kernels/cuda/ops/gemm/quantised.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/cuda/ops/gemm/gemm.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/test_weights.h"

namespace quire::kernels::cuda::test {
namespace {

const DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ4_K, DType::kQ5_0,
                        DType::kQ5_1, DType::kQ5_K, DType::kQ6_K, DType::kQ8_0};

// Rows of x, and a matrix of parts of one type that stand below each other, on one device.
struct Multiplied {
  bool half = false;
  float size = 1.0f;  // of weights
};
class QuantisedBed {
 public:
  QuantisedBed(DType type, const std::vector<int>& part_rows, int k, int most_rows, uint64_t seed,
               const Multiplied& as = {})
      : bed_(seed), k_(k), half_(as.half), store_(static_cast<uint32_t>(seed)) {
    std::vector<WeightSource> parts;
    for (const int rows : part_rows) {
      parts.push_back(store_.Random(type, rows, k, as.size));
      n_ += rows;
    }
    layout_ = QuantisedLayout(type, k);
    std::vector<std::byte> packed(QuantisedBytes(layout_, n_));
    int64_t first = 0;
    for (const WeightSource& part : parts) {
      PackQuantised(part, first, packed.data());
      first += part.rows;
      for (int64_t row = 0; row < part.rows; ++row) {
        for (int64_t col = 0; col < k; ++col) {
          const auto value = static_cast<float>(kernels::test::ElementOf(part, row, col));
          expanded.push_back(Narrow(value, half_));
        }
      }
    }
    layout_.data = reinterpret_cast<const unsigned char*>(bed_.Put(packed));
    x = RandomNarrow(static_cast<size_t>(most_rows) * k, seed + 1, half_);
    x_ = bed_.Put(x);
    weight_ = bed_.Put(expanded);
  }

  DeviceBed& bed() { return bed_; }
  size_t PackedBytes() const { return QuantisedBytes(layout_, n_); }

  // Rows of the result, or nothing when they are made in bfloat16 for what they cost.
  std::vector<float> Run(int m, bool quantised, int multiprocessors = kGemmMultiprocessors,
                         bool narrow = false) {
    GemmParams params;
    params.x = x_;
    if (quantised) params.quantised = layout_;
    if (!quantised) params.weight = weight_;
    params.half = half_;
    const size_t count = static_cast<size_t>(m) * n_;
    auto* out = bed_.New<float>(count);
    params.out = out;
    params.out_float32 = !narrow;
    params.m = m;
    params.n = n_;
    params.k = k_;
    params.multiprocessors = multiprocessors;
    params.workspace = bed_.New<float>(GemmWorkspaceBytes(m, n_, k_) / sizeof(float));
    params.counters = bed_.Put(std::vector<uint32_t>(GemmCounters(m, n_), 0));
    bed_.Check(LaunchGemm(bed_.runtime(), bed_.stream(), params));
    bed_.Check(bed_.runtime().Synchronize(bed_.stream()));
    return narrow ? std::vector<float>() : bed_.Get(out, count);
  }

  std::vector<uint16_t> x;
  std::vector<uint16_t> expanded;  // [n, k]

 private:
  DeviceBed bed_;
  int n_ = 0;
  int k_;
  const bool half_;
  kernels::test::WeightStore store_;
  QuantisedWeight layout_;
  const uint16_t* x_ = nullptr;
  const uint16_t* weight_ = nullptr;
};

TEST(CudaQuantised, ProductsHaveTheBitsOfTheExpandedWeights) {
  uint64_t seed = 1;
  for (const DType type : kTypes) {
    SCOPED_TRACE(DTypeName(type));
    // Two pieces of K, the second of which begins within a block of 256; the last tile is cut where
    // the format allows it.
    const int k = BlockElements(type) == 256 ? 1280 : 1184;
    ASSERT_EQ(GemmSplits(136, k), 2);
    for (const bool half : {false, true}) {
      QuantisedBed bed(type, {24, 112}, k, 40, ++seed, {half});
      const auto expected = bed.Run(40, false);
      for (const int m : {1, 9, 40}) {
        const auto got = bed.Run(m, true);
        ASSERT_EQ(memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << m;
      }
      const auto one_block = bed.Run(3, true, 1);
      ASSERT_EQ(memcmp(one_block.data(), expected.data(), one_block.size() * sizeof(float)), 0);
    }
  }
}

TEST(CudaQuantised, WeightsBeyondFloat16AreItsLargest) {
  for (const DType type : {DType::kQ4_0, DType::kQ5_0, DType::kQ6_K, DType::kQ8_0}) {
    SCOPED_TRACE(DTypeName(type));
    QuantisedBed bed(type, {24}, 256, 3, 30, {true, 1e5f});
    ASSERT_TRUE(std::any_of(bed.expanded.begin(), bed.expanded.end(),
                            [](uint16_t bits) { return (bits & 0x7fffu) == 0x7bffu; }));
    const auto got = bed.Run(3, true);
    for (const float sum : got) ASSERT_TRUE(std::isfinite(sum));
    ASSERT_EQ(got, bed.Run(3, false));
  }
}

TEST(CudaQuantised, ProductsAreTheFloat64ProductsOfTheFormatsNumbers) {
  for (int i = 0; i < 2 * static_cast<int>(std::size(kTypes)); ++i) {
    const DType type = kTypes[i / 2];
    const bool half = i % 2 != 0;
    SCOPED_TRACE(DTypeName(type));
    const int k = 256;
    QuantisedBed bed(type, {24}, k, 3, 40, {half});
    const auto got = bed.Run(3, true);
    for (int m = 0; m < 3; ++m) {
      for (int n = 0; n < 24; ++n) {
        double sum = 0.0;
        double magnitude = 0.0;
        for (int i = 0; i < k; ++i) {
          const double product = static_cast<double>(Widen(bed.x[m * k + i], half)) *
                                 Widen(bed.expanded[n * k + i], half);
          sum += product;
          magnitude += std::abs(product);
        }
        ASSERT_NEAR(got[m * 24 + n], sum, magnitude * (k / 16 + 8) * 0x1p-24) << m << " " << n;
      }
    }
  }
}

TEST(CudaQuantised, BitsOfARowAreTheSameAtEveryNumberOfRows) {
  for (const bool half : {false, true}) {
    QuantisedBed bed(DType::kQ4_K, {40}, 512, 130, 5, {half});
    const auto whole = bed.Run(130, true);
    for (const int m :
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64}) {
      const auto part = bed.Run(m, true);
      ASSERT_EQ(memcmp(part.data(), whole.data(), part.size() * sizeof(float)), 0) << m;
    }
  }
}

TEST(CudaQuantised, KeepsItsBudget) {
  struct Shape {
    DType type;
    int m;
    const char* kernel;
  };
  for (const Shape& s :
       {Shape{DType::kQ4_K, 8, "gemm_q4_8"}, Shape{DType::kQ4_0, 32, "gemm_q4_32"},
        Shape{DType::kQ4_K, 128, "gemm_q4_128"}, Shape{DType::kQ5_K, 8, "gemm_q5_8"},
        Shape{DType::kQ5_1, 32, "gemm_q5_32"}, Shape{DType::kQ5_0, 128, "gemm_q5_128"},
        Shape{DType::kQ6_K, 8, "gemm_q6_8"}, Shape{DType::kQ6_K, 32, "gemm_q6_32"},
        Shape{DType::kQ6_K, 128, "gemm_q6_128"}, Shape{DType::kQ8_0, 8, "gemm_q8_8"},
        Shape{DType::kQ8_0, 32, "gemm_q8_32"}, Shape{DType::kQ8_0, 128, "gemm_q8_128"}}) {
    const int n = 128;
    const int k = 512;
    QuantisedBed bed(s.type, {n}, k, s.m, 6);
    bed.Run(s.m, true, kGemmMultiprocessors, true);
    const double bytes = bed.PackedBytes() + 2.0 * s.m * k + 2.0 * s.m * n;
    ExpectWithinBudget(bed.bed().runtime(), s.kernel, bytes,
                       static_cast<double>(s.m) * n * k / (16 * 8 * 16));
  }
}

TEST(CudaQuantised, PackedWeightsAreHardlyLargerThanTheFiles) {
  for (const DType type : kTypes) {
    const QuantisedWeight layout = QuantisedLayout(type, 4096);
    const double file = 4096.0 / BlockElements(type) * BlockBytes(type) * 4096;
    EXPECT_LE(QuantisedBytes(layout, 4096), 1.03 * file) << DTypeName(type);
  }
}

TEST(CudaQuantised, WhatCannotStayQuantisedIsTold) {
  EXPECT_FALSE(CanStayQuantised(DType::kBF16, 256));
  EXPECT_FALSE(CanStayQuantised(DType::kF32, 256));
  EXPECT_FALSE(CanStayQuantised(DType::kQ4_K, 128));
  EXPECT_TRUE(CanStayQuantised(DType::kQ8_0, 96));
  DeviceBed bed;
  GemmParams params;
  params.m = 1;
  params.n = 8;
  params.k = 128;
  params.quantised = QuantisedLayout(DType::kQ4_K, 256);
  params.quantised.data = bed.New<unsigned char>(4096);
  EXPECT_NE(LaunchGemm(bed.runtime(), bed.stream(), params), "");
  params.k = 256;
  params.out_stride = 12;
  EXPECT_NE(LaunchGemm(bed.runtime(), bed.stream(), params), "");
}

}  // namespace
}  // namespace quire::kernels::cuda::test
