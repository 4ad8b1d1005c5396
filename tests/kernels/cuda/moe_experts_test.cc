// Products of experts with the bits of each expert's own, sums in the order of choice.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cuda/ops/moe/combine.h"
#include "kernels/cuda/ops/moe/grouped_product.h"
#include "kernels/cuda/ops/moe/route.h"
#include "kernels/cuda/ops/rows/activation.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/test_weights.h"

namespace quire::kernels::cuda::test {
namespace {

// Experts of one type, a choice of experts for each pair, and their products.
class Experts {
 public:
  Experts(DType type, int experts, int n, int k, bool half, uint64_t seed)
      : bed_(seed), type_(type), n_(n), k_(k), half_(half), store_(static_cast<uint32_t>(seed)) {
    if (type == DType::kBF16) {
      stride_ = static_cast<size_t>(n) * k * 2;
    } else {
      layout_ = QuantisedLayout(type, k);
      stride_ = QuantisedBytes(layout_, n);
    }
    std::vector<std::byte> packed(stride_ * experts);
    for (int e = 0; e < experts; ++e) {
      if (type == DType::kBF16) {
        const auto floats = RandomNarrow(static_cast<size_t>(n) * k, seed + 10 + e, half);
        memcpy(packed.data() + e * stride_, floats.data(), stride_);
      } else {
        PackQuantised(store_.Random(type, n, k, 1.0f), 0, packed.data() + e * stride_);
      }
    }
    weights_ = bed_.Put(packed);
    bias_ = bed_.Put(RandomFloats(static_cast<size_t>(experts) * n, seed + 1));
  }

  DeviceBed& bed() { return bed_; }
  void DropBias() { bias_ = nullptr; }
  size_t stride() const { return stride_; }

  GemmParams Product(int expert, bool out_float32) const {
    GemmParams params;
    const auto* at = reinterpret_cast<const unsigned char*>(weights_) + expert * stride_;
    if (type_ == DType::kBF16) {
      params.weight = reinterpret_cast<const uint16_t*>(at);
    } else {
      params.quantised = layout_;
      params.quantised.data = at;
    }
    if (bias_ != nullptr) params.bias = bias_ + static_cast<size_t>(expert) * n_;
    params.n = n_;
    params.k = k_;
    params.half = half_;
    params.out_float32 = out_float32;
    return params;
  }

  // [pairs, n] as bytes. `expert_of` by pair; `per_row` pairs share a row of x.
  std::vector<std::byte> Grouped(const std::vector<uint16_t>& x, const std::vector<int>& expert_of,
                                 int per_row, int tile_rows, bool out_float32) {
    std::vector<int32_t> pairs(expert_of.size());
    std::iota(pairs.begin(), pairs.end(), 0);
    std::stable_sort(pairs.begin(), pairs.end(),
                     [&](int a, int b) { return expert_of[a] < expert_of[b]; });
    std::vector<ExpertTile> tiles;
    for (int32_t i = 0; i < static_cast<int32_t>(pairs.size()); ++i) {
      const int expert = expert_of[pairs[i]];
      if (tiles.empty() || tiles.back().expert != expert || tiles.back().rows == tile_rows) {
        tiles.push_back({expert, i, 0});
      }
      ++tiles.back().rows;
    }
    GroupedParams params;
    params.product = Product(0, out_float32);
    params.product.x = bed_.Put(x);
    const size_t bytes = pairs.size() * n_ * (out_float32 ? 4 : 2);
    auto* out = bed_.New<std::byte>(bytes);
    params.product.out = out;
    const int most = static_cast<int>(tiles.size()) + 2;  // blocks that find no tile
    params.tile_count = bed_.Put(std::vector<int32_t>{static_cast<int32_t>(tiles.size())});
    params.tiles = bed_.Put(tiles);
    params.pairs = bed_.Put(pairs);
    params.per_row = per_row;
    params.weight_bytes = static_cast<int64_t>(stride_);
    params.bias_floats = n_;
    bed_.Check(LaunchGroupedProduct(bed_.runtime(), bed_.stream(), params, tile_rows, most));
    return bed_.Get(out, bytes);
  }

  // The same by a plain product for each pair.
  std::vector<std::byte> Plain(const std::vector<uint16_t>& x, const std::vector<int>& expert_of,
                               int per_row, bool out_float32) {
    const size_t row_bytes = n_ * (out_float32 ? 4 : 2);
    std::vector<std::byte> all;
    const uint16_t* rows = bed_.Put(x);
    auto* out = bed_.New<std::byte>(row_bytes * expert_of.size());
    auto* workspace = bed_.New<float>(GemmWorkspaceBytes(1, n_, k_) / sizeof(float) + 1);
    auto* counters = bed_.Put(std::vector<uint32_t>(GemmCounters(1, n_), 0));
    for (size_t pair = 0; pair < expert_of.size(); ++pair) {
      GemmParams params = Product(expert_of[pair], out_float32);
      params.x = rows + pair / per_row * k_;
      params.out = out + pair * row_bytes;
      params.m = 1;
      params.workspace = workspace;
      params.counters = counters;
      bed_.Check(LaunchGemm(bed_.runtime(), bed_.stream(), params));
    }
    return bed_.Get(out, row_bytes * expert_of.size());
  }

 private:
  DeviceBed bed_;
  DType type_;
  int n_, k_;
  bool half_;
  kernels::test::WeightStore store_;
  QuantisedWeight layout_;
  size_t stride_ = 0;
  const std::byte* weights_ = nullptr;
  const float* bias_ = nullptr;
};

// One without a row, one with many, others with few.
std::vector<int> SomeExperts(int pairs) {
  std::vector<int> expert_of;
  for (int p = 0; p < pairs; ++p) expert_of.push_back(p % 3 == 0 ? p * 7 % 5 % 4 : 4);
  for (int& expert : expert_of) expert += expert >= 2 ? 1 : 0;
  return expert_of;
}

TEST(CudaExperts, RowsHaveTheBitsOfThatExpertsOwnProduct) {
  uint64_t seed = 1;
  for (const DType type : {DType::kBF16, DType::kQ4_K, DType::kQ5_0, DType::kQ6_K, DType::kQ8_0,
                           DType::kG4, DType::kG8, DType::kF8, DType::kMXFP4, DType::kNF4}) {
    SCOPED_TRACE(DTypeName(type));
    const bool deep = BlockElements(type) > 32 || type == DType::kBF16;
    const int k = deep ? 1280 : 1184;  // two pieces of K
    ASSERT_EQ(GemmSplits(136, k), 2);
    const int pairs = 14;
    const std::vector<int> expert_of = SomeExperts(pairs);
    const bool half = seed % 2 == 0;
    Experts experts(type, 6, 136, k, half, ++seed * 100);
    const auto x = RandomNarrow(static_cast<size_t>(pairs / 2) * k, seed, half);
    const auto wanted = experts.Plain(x, expert_of, 2, seed % 3 == 0);
    for (const int tile_rows : {8, 32, 128}) {
      ASSERT_EQ(experts.Grouped(x, expert_of, 2, tile_rows, seed % 3 == 0), wanted) << tile_rows;
    }
  }
}

TEST(CudaExperts, BitsOfARowAreTheSameAtEveryNumberOfRows) {
  const int k = 72;
  Experts experts(DType::kBF16, 6, 24, k, false, 5);
  const auto x = RandomNarrow(static_cast<size_t>(64) * k, 6, false);
  const auto wanted = experts.Plain(x, SomeExperts(64), 1, true);
  for (const int rows :
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64}) {
    for (const int tile_rows : {8, 32, 128}) {
      const std::vector<uint16_t> some(x.begin(), x.begin() + static_cast<ptrdiff_t>(rows) * k);
      const auto got = experts.Grouped(some, SomeExperts(rows), 1, tile_rows, true);
      ASSERT_EQ(memcmp(got.data(), wanted.data(), got.size()), 0) << rows << " " << tile_rows;
    }
  }
}

TEST(CudaExperts, KeepTheirBudget) {
  struct Shape {
    DType type;
    int rows;
    const char* kernel;
  };
  for (const Shape& s :
       {Shape{DType::kBF16, 8, "experts_8"},          Shape{DType::kBF16, 32, "experts_32"},
        Shape{DType::kBF16, 128, "experts_128"},      Shape{DType::kQ4_K, 8, "experts_q4_8"},
        Shape{DType::kQ4_0, 32, "experts_q4_32"},     Shape{DType::kQ4_K, 128, "experts_q4_128"},
        Shape{DType::kQ5_K, 8, "experts_q5_8"},       Shape{DType::kQ5_1, 32, "experts_q5_32"},
        Shape{DType::kQ5_0, 128, "experts_q5_128"},   Shape{DType::kQ6_K, 8, "experts_q6_8"},
        Shape{DType::kQ6_K, 32, "experts_q6_32"},     Shape{DType::kQ6_K, 128, "experts_q6_128"},
        Shape{DType::kQ8_0, 8, "experts_q8_8"},       Shape{DType::kQ8_0, 32, "experts_q8_32"},
        Shape{DType::kQ8_0, 128, "experts_q8_128"},   Shape{DType::kG4, 8, "experts_g4_8"},
        Shape{DType::kG4_128, 32, "experts_g4_32"},   Shape{DType::kG4_128, 128, "experts_g4_128"},
        Shape{DType::kG8, 8, "experts_g8_8"},         Shape{DType::kG8, 32, "experts_g8_32"},
        Shape{DType::kG8, 128, "experts_g8_128"},     Shape{DType::kF8, 8, "experts_f8_8"},
        Shape{DType::kF8, 32, "experts_f8_32"},       Shape{DType::kF8, 128, "experts_f8_128"},
        Shape{DType::kMXFP4, 8, "experts_t4_8"},      Shape{DType::kQ2_K, 32, "experts_t4_32"},
        Shape{DType::kIQ2_XS, 128, "experts_t4_128"}, Shape{DType::kNF4, 8, "experts_n4_8"},
        Shape{DType::kFP4, 32, "experts_n4_32"},      Shape{DType::kNF4, 128, "experts_n4_128"}}) {
    const int n = 128;
    const int k = 512;
    Experts experts(s.type, 3, n, k, false, 6);
    std::vector<int> expert_of(s.rows, 0);
    expert_of.resize(2 * s.rows, 2);
    const auto x = RandomNarrow(static_cast<size_t>(2 * s.rows) * k, 7, false);
    experts.DropBias();
    experts.Grouped(x, expert_of, 1, s.rows, false);
    const double rows = 2.0 * s.rows;
    const double bytes = 2.0 * experts.stride() + 2.0 * rows * k + 2.0 * rows * n;
    ExpectWithinBudget(experts.bed().runtime(), s.kernel, bytes, rows * n * k / (16 * 8 * 16));
  }
}

TEST(CudaExperts, ShapesThatTheyCannotTakeAreRefused) {
  DeviceBed bed;
  GroupedParams params;
  params.product.n = params.product.k = 8;
  EXPECT_NE(LaunchGroupedProduct(bed.runtime(), bed.stream(), params, 16, 1), "");
  params.product.k = 12;
  EXPECT_NE(LaunchGroupedProduct(bed.runtime(), bed.stream(), params, 8, 1), "");
  params.product.k = 128;
  params.product.quantised = QuantisedLayout(DType::kQ4_K, 256);
  params.product.quantised.data = bed.New<unsigned char>(4096);
  EXPECT_NE(LaunchGroupedProduct(bed.runtime(), bed.stream(), params, 8, 1), "");
}

TEST(CudaCombine, AddsInTheOrderOfChoiceAndKeepsItsBudget) {
  for (const bool accumulate : {false, true}) {
    for (const int tokens : {1, 3, 16}) {
      DeviceBed bed(tokens);
      const int chosen = 8;
      const int width = 2048;
      const size_t n = static_cast<size_t>(tokens) * width;
      const auto rows = RandomFloats(n * chosen, 11);
      const auto weights = RandomFloats(static_cast<size_t>(tokens) * chosen, 12);
      const auto there = RandomFloats(n, 13);
      CombineParams params;
      params.rows = bed.Put(rows);
      params.weights = bed.Put(weights);
      params.out = accumulate ? bed.Put(there) : bed.New<float>(n);
      params.tokens = tokens;
      params.chosen = chosen;
      params.width = width;
      params.accumulate = accumulate;
      bed.Check(LaunchCombine(bed.runtime(), bed.stream(), params));
      const auto out = bed.Get(params.out, n);
      for (size_t at = 0; at < n; ++at) {
        const size_t token = at / width;
        float sum = 0.0f;
        double exact = accumulate ? there[at] : 0.0;
        for (int i = 0; i < chosen; ++i) {
          const size_t pair = token * chosen + i;
          const float row = rows[pair * width + at % width];
          sum = std::fma(weights[pair], row, sum);
          exact += static_cast<double>(weights[pair]) * row;
        }
        if (accumulate) sum = there[at] + sum;
        ASSERT_EQ(out[at], sum) << at;
        ASSERT_NEAR(out[at], exact, 1e-5) << at;
      }
      if (tokens != 16) continue;
      ExpectWithinBudget(bed.runtime(), "combine_experts",
                         (4.0 * chosen + (accumulate ? 8 : 4)) * n + 4.0 * weights.size(), 0);
    }
  }
}

// The other activations are in row_ops_test.cc.
TEST(CudaActivation, OfExpertsIsTheFloat64MeaningAndKeepsItsBudget) {
  for (const Activation kind : {Activation::kClampedGated, Activation::kReluSquared}) {
    DeviceBed bed(6);
    const int width = 1536;
    const int rows = 64;
    const bool gated = kind == Activation::kClampedGated;
    const auto in = RandomBf16(static_cast<size_t>(rows) * width * (gated ? 2 : 1), 5, 4.0f);
    ActivationParams params;
    params.in = bed.Put(in);
    params.out = bed.New<uint16_t>(static_cast<size_t>(rows) * width);
    params.rows = rows;
    params.width = width;
    params.kind = kind;
    bed.Check(LaunchActivation(bed.runtime(), bed.stream(), params));
    const auto out = bed.Get(params.out, static_cast<size_t>(rows) * width);
    for (size_t at = 0; at < out.size(); ++at) {
      const size_t from = gated ? at + at / width * width : at;
      const double x = Widen(in[from]);
      double exact = x > 0 ? x * x : 0.0;
      if (gated) {
        const double g = std::min(x, 7.0);
        const double u = std::clamp<double>(Widen(in[from + width]), -7.0, 7.0);
        exact = g / (1.0 + std::exp(-1.702 * g)) * (u + 1.0);
      }
      ASSERT_NEAR(Widen(out[at]), exact, 1.01 * Bf16Rounding(exact) + 1e-6) << at;
    }
    const char* name = gated ? "clamped_gated" : "relu_squared";
    ExpectWithinBudget(bed.runtime(), name, 64.0 * width * (gated ? 6 : 4), 0);
  }
}

TEST(CudaActivation, TheSquareOfReluTakesFloat32AndKeepsItsBudget) {
  DeviceBed bed(7);
  const int width = 1536;
  const int rows = 64;
  const auto in = RandomFloats(static_cast<size_t>(rows) * width, 5, 4.0f);
  ActivationParams params;
  params.floats = bed.Put(in);
  params.out = bed.New<uint16_t>(in.size());
  params.rows = rows;
  params.width = width;
  params.kind = Activation::kReluSquared;
  bed.Check(LaunchActivation(bed.runtime(), bed.stream(), params));
  const auto out = bed.Get(params.out, in.size());
  for (size_t at = 0; at < out.size(); ++at) {
    ASSERT_EQ(out[at], device::Bf16Bits(in[at] > 0.0f ? in[at] * in[at] : 0.0f)) << at;
  }
  ExpectWithinBudget(bed.runtime(), "relu_squared_floats", 6.0 * rows * width, 0);
  params.kind = Activation::kRelu;
  EXPECT_NE(LaunchActivation(bed.runtime(), bed.stream(), params), "");
}

}  // namespace
}  // namespace quire::kernels::cuda::test
