// The GEMM against float64, and bits equal at every number of rows, in one block's hands or many's.
#include "kernels/cuda/ops/gemm/gemm.h"

#include <algorithm>

#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

struct GemmCase {
  int m;
  int n;
  int k;
  bool bias = false;
  bool out_float32 = true;
  int multiprocessors = kGemmMultiprocessors;
  bool accumulate = false;
  bool relu = false;
  float scale = 1.0f;
  float softcap = 0.0f;
  bool half = false;
  bool relu_squared = false;
};

// [m, n] as float32, whatever the type of out.
std::vector<float> RunGemm(DeviceBed& bed, const GemmCase& c) {
  GemmParams params;
  params.x = bed.Put(RandomNarrow(static_cast<size_t>(c.m) * c.k, 1, c.half));
  params.weight = bed.Put(RandomNarrow(static_cast<size_t>(c.n) * c.k, 2, c.half));
  params.half = c.half;
  if (c.bias) params.bias = bed.Put(RandomFloats(c.n, 3));
  const size_t count = static_cast<size_t>(c.m) * c.n;
  // What is there already: NaN, or numbers to be added to.
  auto* out = c.accumulate ? bed.Put(RandomFloats(count, 4)) : bed.New<float>(count);
  auto* narrow = bed.New<uint16_t>(count);
  params.accumulate = c.accumulate;
  params.relu = c.relu;
  params.relu_squared = c.relu_squared;
  params.scale = c.scale;
  params.softcap = c.softcap;
  params.out = c.out_float32 ? static_cast<void*>(out) : narrow;
  params.out_float32 = c.out_float32;
  params.m = c.m;
  params.n = c.n;
  params.k = c.k;
  params.multiprocessors = c.multiprocessors;
  params.workspace = bed.New<float>(GemmWorkspaceBytes(c.m, c.n, c.k) / sizeof(float));
  params.counters = bed.Put(std::vector<uint32_t>(GemmCounters(c.m, c.n), 0));
  bed.Check(LaunchGemm(bed.runtime(), bed.stream(), params));
  for (const uint32_t left : bed.Get(params.counters, GemmCounters(c.m, c.n))) EXPECT_EQ(left, 0u);
  if (c.out_float32) return bed.Get(out, count);
  std::vector<float> wide;
  for (const uint16_t bits : bed.Get(narrow, count)) wide.push_back(Widen(bits));
  return wide;
}

// Against float64: sums of at most k/16 rounded products, so k/16 · 2⁻²⁴ of Σ |x · w|.
void ExpectExact(const GemmCase& c, const std::vector<float>& out) {
  const auto x = RandomNarrow(static_cast<size_t>(c.m) * c.k, 1, c.half);
  const auto weight = RandomNarrow(static_cast<size_t>(c.n) * c.k, 2, c.half);
  const auto bias = RandomFloats(c.n, 3);
  const auto there = RandomFloats(static_cast<size_t>(c.m) * c.n, 4);
  for (int m = 0; m < c.m; ++m) {
    for (int n = 0; n < c.n; ++n) {
      double sum = c.bias ? bias[n] : 0.0;
      double magnitude = 1.0;
      for (int k = 0; k < c.k; ++k) {
        const double product =
            static_cast<double>(Widen(x[static_cast<size_t>(m) * c.k + k], c.half)) *
            Widen(weight[static_cast<size_t>(n) * c.k + k], c.half);
        sum += product;
        magnitude += std::abs(product);
      }
      sum *= c.scale;
      if (c.softcap > 0) sum = c.softcap * std::tanh(sum / c.softcap);
      if (c.relu) sum = std::max(sum, 0.0);
      const double steep = c.relu_squared ? 2.0 * sum + 1.0 : 1.0;  // what an error grows by
      if (c.relu_squared) sum *= sum;
      if (c.accumulate) sum += there[static_cast<size_t>(m) * c.n + n];
      const double slack =
          magnitude * (c.k / 16 + 8) * 0x1p-24 * c.scale * steep + c.softcap * 1e-6;
      const double rounding = c.out_float32 ? 0.0 : Bf16Rounding(sum);
      ASSERT_NEAR(out[static_cast<size_t>(m) * c.n + n], sum, slack + rounding)
          << "m " << m << " n " << n << " of " << c.m << " " << c.n << " " << c.k;
    }
  }
}

TEST(CudaGemm, IsTheFloat64ProductAtEveryTileAndEdge) {
  uint64_t seed = 1;
  for (const GemmCase& c :
       {GemmCase{1, 8, 8}, GemmCase{3, 128, 64}, GemmCase{8, 136, 200, true, false},
        GemmCase{16, 256, 1088, true}, GemmCase{17, 24, 72}, GemmCase{33, 128, 1032, false, false},
        GemmCase{64, 72, 520, true}, GemmCase{65, 136, 136}, GemmCase{130, 64, 96, true, false}}) {
    DeviceBed bed(++seed);
    ExpectExact(c, RunGemm(bed, c));
    GemmCase half = c;
    half.half = true;
    ExpectExact(half, RunGemm(bed, half));
  }
}

TEST(CudaGemm, AddsScalesCapsAndActivatesWhatItMade) {
  uint64_t seed = 20;
  for (const bool out_float32 : {false, true}) {
    for (const int m : {3, 70}) {
      const int all = kGemmMultiprocessors;
      for (const GemmCase& c :
           {GemmCase{m, 72, 1088, true, out_float32, all, out_float32},
            GemmCase{m, 24, 72, true, out_float32, all, out_float32, true},
            GemmCase{m, 24, 72, false, out_float32, all, false, true, 0.5f},
            GemmCase{m, 24, 72, true, out_float32, all, out_float32, true, 1.0f, 0.0f, false, true},
            GemmCase{m, 24, 200, true, out_float32, all, false, false, 1.5f, 30.0f}}) {
        DeviceBed bed(++seed);
        ExpectExact(c, RunGemm(bed, c));
      }
    }
  }
}

TEST(CudaGemm, BitsOfARowAreTheSameAtEveryNumberOfRows) {
  DeviceBed bed(3);
  const int n = 136;
  const int k = 1160;  // two pieces, the last tile of K cut
  ASSERT_EQ(GemmSplits(n, k), 2);
  for (const bool half : {false, true}) {
    GemmCase c{130, n, k};
    c.half = half;
    const auto whole = RunGemm(bed, c);
    for (const int m :
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64}) {
      c.m = m;
      const auto part = RunGemm(bed, c);
      ASSERT_EQ(memcmp(part.data(), whole.data(), part.size() * sizeof(float)), 0) << m;
    }
  }
}

TEST(CudaGemm, OneBlockAndManyMakeTheSameBits) {
  for (const int m : {5, 130}) {
    DeviceBed bed(4);
    GemmCase c{m, 136, 2056};
    ASSERT_EQ(GemmSplits(c.n, c.k), 4);
    const auto many = RunGemm(bed, c);
    const char* kernel = m == 5 ? "gemm_8" : "gemm_128";
    const bool counts = bed.runtime().counts();
    const uint64_t many_blocks = counts ? bed.runtime().counters().at(kernel).blocks : 4;
    bed.runtime().ClearCounters();
    c.multiprocessors = 1;
    const auto one = RunGemm(bed, c);
    const uint64_t one_blocks = counts ? bed.runtime().counters().at(kernel).blocks : 1;
    EXPECT_EQ(many_blocks, 4 * one_blocks);
    ASSERT_EQ(memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0) << m;
    ExpectExact(c, one);
  }
}

TEST(CudaGemm, AShorterRingMakesTheSameBits) {
  DeviceBed bed(6);
  const GemmCase c{130, 136, 2056};  // many pieces, and tiles that are not full
  const auto long_ring = RunGemm(bed, c);
  bed.runtime().LimitShared(runtime::kLeastSharedBytes);
  const auto short_ring = RunGemm(bed, c);
  EXPECT_EQ(bed.runtime().counters().count("gemm_128_short"), bed.runtime().counts() ? 1u : 0u);
  ASSERT_EQ(memcmp(short_ring.data(), long_ring.data(), long_ring.size() * sizeof(float)), 0);
}

TEST(CudaGemm, KeepsItsBudget) {
  struct Shape {
    GemmCase c;
    const char* kernel;
  };
  for (const Shape& s :
       {Shape{{8, 1024, 512}, "gemm_8"}, Shape{{16, 512, 512}, "gemm_16"},
        Shape{{32, 128, 512}, "gemm_32"}, Shape{{64, 128, 512}, "gemm_64"},
        Shape{{128, 128, 512}, "gemm_128"}, Shape{{128, 128, 512}, "gemm_128_short"}}) {
    DeviceBed bed(5);
    if (std::string(s.kernel) == "gemm_128_short") {
      bed.runtime().LimitShared(runtime::kLeastSharedBytes);
    }
    for (const bool sum : {false, true}) {
      GemmCase c = s.c;
      c.out_float32 = c.accumulate = sum;
      bed.runtime().ClearCounters();
      RunGemm(bed, c);
      const double rows = static_cast<double>(c.m) * c.n;
      const double bytes = 2.0 * (static_cast<double>(c.m) * c.k + static_cast<double>(c.n) * c.k) +
                           (sum ? 8.0 : 2.0) * rows;
      ExpectWithinBudget(bed.runtime(), s.kernel, bytes, rows * c.k / (16 * 8 * 16));
    }
  }
}

TEST(CudaGemm, PiecesFollowFromNAndKAlone) {
  EXPECT_EQ(GemmSplits(128, 64), 1);
  EXPECT_EQ(GemmSplits(128, 4096), 8);
  EXPECT_EQ(GemmSplits(4096, 4096), 4);
  EXPECT_EQ(GemmSplits(28672, 4096), 1);
  EXPECT_EQ(GemmSplits(128256, 4096), 1);
}

TEST(CudaGemm, ShapesThatItCannotTakeAreRefused) {
  DeviceBed bed;
  GemmParams params;
  params.m = 1;
  for (const auto& [n, k] :
       {std::pair{0, 8}, std::pair{12, 8}, std::pair{8, 20}, std::pair{8, -8}}) {
    params.n = n;
    params.k = k;
    EXPECT_NE(LaunchGemm(bed.runtime(), bed.stream(), params), "");
  }
  params.n = params.k = 8;
  params.accumulate = true;
  EXPECT_EQ(LaunchGemm(bed.runtime(), bed.stream(), params),
            "gemm: sums are added to float32 alone");
}

}  // namespace
}  // namespace quire::kernels::cuda::test
