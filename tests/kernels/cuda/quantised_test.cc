// Products with quantised weights: the bits of products with the expanded weights, at every number
// of rows, in bfloat16 and in float16, and the float64 meaning of the format.
#include "kernels/cuda/ops/gemm/quantised.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/ops/gemm/gemm.h"
#include "kernels/expand.h"
#include "kernels/grouped_blocks.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/test_weights.h"

namespace quire::kernels::cuda::test {
namespace {

std::vector<DType> QuantisedTypes() {
  std::vector<DType> types;
  for (const DType type : kernels::test::kAllTypes) {
    if (BlockElements(type) > 1) types.push_back(type);
  }
  return types;
}

// Scales of G4 blocks become bfloat16 and float16 numbers.
void RoundSteps(const WeightSource& source) {
  auto* block = const_cast<std::byte*>(source.data);
  const int64_t bytes = BlockBytes(source.type);
  for (const auto* end = block + source.Bytes(); block < end; block += bytes) {
    uint32_t bits;
    memcpy(&bits, block, 4);
    bits &= 0xffff0000u;
    memcpy(block, &bits, 4);
  }
}

// Rows of x, and a matrix of parts of one type that stand below each other, on one device.
struct Multiplied {
  bool half = false;
  float size = 1.0f;    // of weights
  bool narrow = false;  // steps are numbers of the type of the product
};
class QuantisedBed {
 public:
  QuantisedBed(DType type, const std::vector<int>& part_rows, int k, int most_rows, uint64_t seed,
               const Multiplied& as = {})
      : bed_(seed), k_(k), half_(as.half), store_(static_cast<uint32_t>(seed)) {
    std::vector<WeightSource> parts;
    for (const int rows : part_rows) {
      parts.push_back(store_.Random(type, rows, k, as.size));
      if (as.narrow) RoundSteps(parts.back());
      EXPECT_EQ(HasNarrowSteps(parts.back(), half_), as.narrow);
      n_ += rows;
    }
    layout_ = QuantisedLayout(type, k);
    layout_.narrow_steps = as.narrow;
    std::vector<std::byte> packed(QuantisedBytes(layout_, n_));
    int64_t first = 0;
    for (const WeightSource& part : parts) {
      PackQuantised(part, first, packed.data());
      first += part.rows;
      std::vector<float> values(static_cast<size_t>(k));
      for (int64_t row = 0; row < part.rows; ++row) {
        ExpandRow(part, row, values);
        for (int64_t col = 0; col < k; ++col) {
          // The independent reading has floats of tables to seven digits.
          const double value = grouped::HasFloatTable(type)
                                   ? values[static_cast<size_t>(col)]
                                   : kernels::test::ElementOf(part, row, col);
          expanded.push_back(Narrow(static_cast<float>(value), half_));
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
  for (const DType type : QuantisedTypes()) {
    SCOPED_TRACE(DTypeName(type));
    // Two pieces of K, the second of which begins within a block of 256; the last tile is cut where
    // the format allows it.
    const int k = BlockElements(type) > 32 ? 1280 : 1184;
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

// Two weights at once, where steps allow it.
TEST(CudaQuantised, NarrowStepsChangeNoBit) {
  uint64_t seed = 60;
  for (const DType type : {DType::kG4, DType::kG4_128}) {
    for (const bool half : {false, true}) {
      SCOPED_TRACE(DTypeName(type));
      QuantisedBed bed(type, {24, 40}, 256, 40, ++seed, {.half = half, .narrow = true});
      const auto expected = bed.Run(40, false);
      for (const int m : {1, 9, 40}) {
        const auto got = bed.Run(m, true);
        ASSERT_EQ(memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << m;
      }
    }
  }
}

TEST(CudaQuantised, StepsAreNarrowWhereTheTypeHasThem) {
  struct Case {
    float step;
    bool bf16;
    bool f16;
  };
  for (const Case& c :
       {Case{0.0f, true, true}, Case{0x1.02p-7f, true, true}, Case{0x1.01p-7f, false, true},
        Case{0x1.002p-7f, false, false}, Case{-0x1.ffcp-14f, false, true},
        Case{0x1p-24f, true, true}, Case{0x1p-25f, true, false}, Case{0x1.8p-24f, true, false},
        Case{256.0f, true, true}, Case{258.0f, false, false}, Case{HUGE_VALF, false, false},
        Case{std::nanf(""), false, false}}) {
    std::byte block[21] = {};
    memcpy(block, &c.step, 4);
    WeightSource source;
    source.type = DType::kG4;
    source.data = block;
    source.rows = 1;
    source.cols = 32;
    EXPECT_EQ(HasNarrowSteps(source, false), c.bf16) << c.step;
    EXPECT_EQ(HasNarrowSteps(source, true), c.f16) << c.step;
  }
}

TEST(CudaQuantised, WeightsBeyondFloat16AreItsLargest) {
  for (const DType type : {DType::kQ4_0, DType::kQ5_0, DType::kQ6_K, DType::kQ8_0, DType::kG4,
                           DType::kG8, DType::kF8, DType::kIQ4_XS}) {
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
  const std::vector<DType> types = QuantisedTypes();
  for (int i = 0; i < 2 * static_cast<int>(types.size()); ++i) {
    const DType type = types[i / 2];
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
       {Shape{DType::kQ4_K, 8, "gemm_q4_8"},       Shape{DType::kQ4_0, 32, "gemm_q4_32"},
        Shape{DType::kQ4_K, 128, "gemm_q4_128"},   Shape{DType::kQ5_K, 8, "gemm_q5_8"},
        Shape{DType::kQ5_1, 32, "gemm_q5_32"},     Shape{DType::kQ5_0, 128, "gemm_q5_128"},
        Shape{DType::kQ6_K, 8, "gemm_q6_8"},       Shape{DType::kQ6_K, 32, "gemm_q6_32"},
        Shape{DType::kQ6_K, 128, "gemm_q6_128"},   Shape{DType::kQ8_0, 8, "gemm_q8_8"},
        Shape{DType::kQ8_0, 32, "gemm_q8_32"},     Shape{DType::kQ8_0, 128, "gemm_q8_128"},
        Shape{DType::kG4, 8, "gemm_g4_8"},         Shape{DType::kG4_128, 32, "gemm_g4_32"},
        Shape{DType::kG4_128, 128, "gemm_g4_128"}, Shape{DType::kG8, 8, "gemm_g8_8"},
        Shape{DType::kG8, 32, "gemm_g8_32"},       Shape{DType::kG8, 128, "gemm_g8_128"},
        Shape{DType::kF8, 8, "gemm_f8_8"},         Shape{DType::kF8, 32, "gemm_f8_32"},
        Shape{DType::kF8, 128, "gemm_f8_128"},     Shape{DType::kIQ4_XS, 8, "gemm_t4_8"},
        Shape{DType::kQ2_K, 32, "gemm_t4_32"},     Shape{DType::kIQ2_XS, 128, "gemm_t4_128"},
        Shape{DType::kNF4, 8, "gemm_n4_8"},        Shape{DType::kFP4, 32, "gemm_n4_32"},
        Shape{DType::kNF4, 128, "gemm_n4_128"}}) {
    const int n = 128;
    const int k = 512;
    QuantisedBed bed(s.type, {n}, k, s.m, 6);
    bed.Run(s.m, true, kGemmMultiprocessors, true);
    const double bytes = bed.PackedBytes() + 2.0 * s.m * k + 2.0 * s.m * n;
    ExpectWithinBudget(bed.bed().runtime(), s.kernel, bytes,
                       static_cast<double>(s.m) * n * k / (16 * 8 * 16));
  }
}

// GGUF's integers keep the size of the file. Grouped codes pay for float32 steps and zeros of each
// 32 or 64, and codes of one to four bits for the four that each has here.
TEST(CudaQuantised, PackedWeightsHaveTheStatedBits) {
  for (const DType type : QuantisedTypes()) {
    const QuantisedWeight layout = QuantisedLayout(type, 4096);
    const double bits = QuantisedBytes(layout, 4096) * 8.0 / (4096.0 * 4096.0);
    const double file = BlockBytes(type) * 8.0 / BlockElements(type);
    double most = 1.03 * file;
    if (layout.form == QuantForm::kTable) {
      most = type == DType::kF4_16 ? 6.0 : type == DType::kQ2_K ? 5.13 : 4.63;
    }
    if (type == DType::kG4_128) most = 4.63;
    EXPECT_LE(bits, most) << DTypeName(type) << " of " << file << " bits in the file";
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
