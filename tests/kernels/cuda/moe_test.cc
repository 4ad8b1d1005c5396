// Mixtures of experts: choices with the bits of the CPU backend, rows by expert, products with the
// bits of each expert's own, sums in the order of choice.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cuda/ops/moe/combine.h"
#include "kernels/cuda/ops/moe/grouped_product.h"
#include "kernels/cuda/ops/moe/route.h"
#include "kernels/cuda/ops/rows/activation.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/test_weights.h"

namespace quire::kernels::cuda::test {
namespace {

using Scores = RoutingRule::Scores;

struct RouterCase {
  const char* name;
  int width;
  int experts;
  RoutingRule rule;
  bool bias = false;
  bool selection_bias = false;
  bool scales = false;
};
// Rules of the families, widths that are no multiple of a lane's or a stage's, odd counts.
const RouterCase kRouters[] = {
    {"qwen3", 64, 9, {.chosen = 3}},
    {"qwen2", 72, 7, {.chosen = 2, .renormalise = false}},
    {"shared", 264, 1, {.scores = Scores::kSigmoid, .renormalise = false}},
    {"all", 8, 5, {.chosen = 5}, true},
    {"deepseek_v2",
     136,
     12,
     {.chosen = 3, .groups = 4, .groups_used = 2, .renormalise = false, .scale = 4.0f}},
    {"deepseek_v3",
     520,
     64,
     {.scores = Scores::kSigmoid,
      .chosen = 6,
      .groups = 8,
      .groups_used = 3,
      .best_of_group = 2,
      .scale = 2.5f},
     false,
     true},
    {"gemma4", 64, 33, {.chosen = 8}, false, false, true},
    {"biased_softmax", 64, 20, {.chosen = 4, .renormalise = false}, true, true},
    {"most", 64, 1024, {.chosen = 64}}};

struct Routed {
  std::vector<float> weights;
  std::vector<int32_t> chosen, pairs;
  std::vector<ExpertTile> tiles;
};

class Router {
 public:
  Router(const RouterCase& c, int tokens, uint64_t seed)
      : c_(c),
        tokens_(tokens),
        x_(RandomFloats(static_cast<size_t>(tokens) * c.width, seed)),
        router_(RandomFloats(static_cast<size_t>(c.experts) * c.width, seed + 1, 0.3f)),
        bias_(RandomFloats(c.experts, seed + 2)),
        selection_(RandomFloats(c.experts, seed + 3)),
        scales_(RandomFloats(c.experts, seed + 4)) {}

  std::vector<float>& x() { return x_; }
  std::vector<float>& router() { return router_; }
  std::vector<float>& bias() { return bias_; }

  // The first tokens.
  Routed OnDevice(DeviceBed& bed, int tokens, int tile_rows) const {
    RouteParams params;
    params.x = bed.Put(std::vector<float>(x_.begin(), x_.begin() + tokens * c_.width));
    params.router = bed.Put(router_);
    if (c_.bias) params.bias = bed.Put(bias_);
    if (c_.selection_bias) params.selection_bias = bed.Put(selection_);
    if (c_.scales) params.expert_scales = bed.Put(scales_);
    params.tokens = tokens;
    params.width = c_.width;
    params.experts = c_.experts;
    params.rule = c_.rule;
    params.tile_rows = tile_rows;
    const int pairs = tokens * c_.rule.chosen;
    const int most = MostExpertTiles(pairs, c_.experts, tile_rows);
    params.logits = bed.New<float>(static_cast<size_t>(tokens) * c_.experts);
    int32_t* chosen = params.chosen = bed.New<int32_t>(pairs);
    float* weights = params.weights = bed.New<float>(pairs);
    params.pairs = bed.New<int32_t>(pairs);
    params.tiles = bed.New<ExpertTile>(most);
    params.tile_count = bed.New<int32_t>(1);
    params.counters = bed.Put(std::vector<uint32_t>(RouteCounters(tokens), 0));
    bed.Check(LaunchRoute(bed.runtime(), bed.stream(), params));
    for (const uint32_t left : bed.Get(params.counters, RouteCounters(tokens))) {
      EXPECT_EQ(left, 0u);
    }
    const int32_t count = bed.Get(params.tile_count, 1)[0];
    EXPECT_LE(count, most);
    return {bed.Get(weights, pairs), bed.Get(chosen, pairs), bed.Get(params.pairs, pairs),
            bed.Get(params.tiles, std::min(count, most))};
  }

  Routed OnCpu() const {
    const auto stride = static_cast<size_t>(cpu::ScoreStride(c_.experts));
    std::vector<float> scores(2 * stride * tokens_);
    const size_t pairs = static_cast<size_t>(tokens_) * c_.rule.chosen;
    Routed routed{std::vector<float>(pairs), std::vector<int32_t>(pairs), {}, {}};
    cpu::RouteJob job;
    job.x = x_.data();
    job.x_stride = job.width = c_.width;
    job.tokens = tokens_;
    job.router = router_.data();
    if (c_.bias) job.bias = bias_.data();
    if (c_.selection_bias) job.selection_bias = selection_.data();
    if (c_.scales) job.expert_scales = scales_.data();
    job.experts = c_.experts;
    job.rule = c_.rule;
    job.scores = scores.data();
    job.chosen = routed.chosen.data();
    job.weights = routed.weights.data();
    cpu::ReferenceKernels().router_logits(job, 0, c_.experts);
    cpu::ReferenceKernels().choose_experts(job, 0, tokens_);
    return routed;
  }

 private:
  const RouterCase& c_;
  int tokens_;
  std::vector<float> x_, router_, bias_, selection_, scales_;
};

// The rows of every expert, in ascending order, and tiles that hold them all once.
void ExpectSorted(const Routed& routed, int tile_rows) {
  std::vector<int32_t> order(routed.chosen.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return routed.chosen[a] < routed.chosen[b]; });
  ASSERT_EQ(routed.pairs, order);
  int32_t next = 0;
  for (const ExpertTile& tile : routed.tiles) {
    ASSERT_EQ(tile.first, next);
    ASSERT_GT(tile.rows, 0);
    ASSERT_LE(tile.rows, tile_rows);
    next += tile.rows;
    for (int32_t i = tile.first; i < next; ++i) {
      ASSERT_EQ(routed.chosen[order[static_cast<size_t>(i)]], tile.expert);
    }
    const bool ends = next == static_cast<int32_t>(order.size()) ||
                      routed.chosen[order[static_cast<size_t>(next)]] != tile.expert;
    ASSERT_TRUE(ends || tile.rows == tile_rows) << "a tile that is not full amid an expert";
  }
  ASSERT_EQ(next, static_cast<int32_t>(order.size()));
}

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(wanted[i]) && std::isnan(got[i])) continue;
    ASSERT_EQ(device::BitsOfFloat(got[i]), device::BitsOfFloat(wanted[i])) << i;
  }
}

TEST(CudaRoute, ChoosesWhatTheCpuChoosesBitForBit) {
  uint64_t seed = 1;
  for (const RouterCase& c : kRouters) {
    SCOPED_TRACE(c.name);
    const int tokens = c.experts > 100 ? 9 : 41;
    const Router router(c, tokens, ++seed * 10);
    const Routed wanted = router.OnCpu();
    DeviceBed bed(seed);
    const Routed got = router.OnDevice(bed, tokens, 8);
    ASSERT_EQ(got.chosen, wanted.chosen);
    ExpectSameBits(got.weights, wanted.weights);
    ExpectSorted(got, 8);
  }
}

TEST(CudaRoute, ATokensChoiceIsTheSameInAnyCompany) {
  const Router router(kRouters[0], 70, 3);
  const Routed wanted = router.OnCpu();
  const auto chosen = static_cast<size_t>(kRouters[0].rule.chosen);
  for (const int tokens :
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64, 70}) {
    DeviceBed bed(tokens);
    const Routed got = router.OnDevice(bed, tokens, 32);
    const size_t pairs = tokens * chosen;
    ASSERT_TRUE(std::equal(got.chosen.begin(), got.chosen.end(), wanted.chosen.begin())) << tokens;
    ExpectSameBits(got.weights, {wanted.weights.begin(), wanted.weights.begin() + pairs});
    ExpectSorted(got, 32);
  }
}

// Columns of logits as they are: the router is the identity.
Routed RouteLogits(const RoutingRule& rule, const std::vector<float>& logits) {
  const int experts = static_cast<int>(logits.size());
  const int width = (experts + 7) / 8 * 8;
  const RouterCase c{"made up", width, experts, rule};
  Router router(c, 1, 1);
  router.x() = logits;
  router.x().resize(width, 0.0f);
  std::fill(router.router().begin(), router.router().end(), 0.0f);
  for (int e = 0; e < experts; ++e) router.router()[static_cast<size_t>(e) * width + e] = 1.0f;
  const Routed wanted = router.OnCpu();
  DeviceBed bed;
  Routed got = router.OnDevice(bed, 1, 8);
  EXPECT_EQ(got.chosen, wanted.chosen);
  ExpectSameBits(got.weights, wanted.weights);
  return got;
}

using Ids = std::vector<int32_t>;

TEST(CudaRoute, TiesGoToTheLowerId) {
  EXPECT_EQ(RouteLogits({.chosen = 2}, {1, 3, 3, 3, 0}).chosen, (Ids{1, 2}));
  EXPECT_EQ(RouteLogits({.chosen = 3}, std::vector<float>(40, -7.0f)).chosen, (Ids{0, 1, 2}));
  // In one lane and in two: 1 and 33, then 2.
  std::vector<float> logits(64, 0.0f);
  logits[33] = logits[1] = logits[2] = 5.0f;
  EXPECT_EQ(RouteLogits({.chosen = 3}, logits).chosen, (Ids{1, 2, 33}));
  // A saturated sigmoid is 1 for both.
  EXPECT_EQ(RouteLogits({.scores = Scores::kSigmoid, .chosen = 1}, {90, 100}).chosen, (Ids{0}));
  const RoutingRule groups{.chosen = 2, .groups = 3, .groups_used = 1, .best_of_group = 2};
  EXPECT_EQ(RouteLogits(groups, {4, 2, 3, 3, 2, 4}).chosen, (Ids{0, 1}));
}

// A NaN in x makes every logit of its token one.
TEST(CudaRoute, LogitsThatAreNoNumbersAreTakenLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Scores scores : {Scores::kSoftmax, Scores::kSigmoid}) {
    const RouterCase c{"made up", 8, 4, {.scores = scores, .chosen = 2}};
    Router router(c, 2, 1);
    router.x() = {nan, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0};
    const Routed wanted = router.OnCpu();
    DeviceBed bed;
    const Routed got = router.OnDevice(bed, 2, 8);
    EXPECT_EQ(got.chosen[0], 0);
    EXPECT_EQ(got.chosen[1], 1);
    EXPECT_EQ(got.chosen, wanted.chosen);
    // NaN for one expert alone.
    router.x()[0] = 1.0f;
    router.router()[8] = nan;
    EXPECT_EQ(router.OnDevice(bed, 2, 8).chosen, router.OnCpu().chosen);
  }
}

// A group with +∞ and −∞ has no number as its key: it is taken last, and others are chosen.
TEST(CudaRoute, AGroupWithoutANumberIsTakenLast) {
  const float inf = std::numeric_limits<float>::infinity();
  const RouterCase c{
      "made up", 8, 6, {.chosen = 2, .groups = 3, .groups_used = 1, .best_of_group = 2}, true};
  Router router(c, 1, 1);
  std::fill(router.x().begin(), router.x().end(), 0.0f);
  router.bias() = {0, 1, inf, -inf, 2, 3};
  DeviceBed bed;
  EXPECT_EQ(router.OnDevice(bed, 1, 8).chosen, (Ids{5, 4}));
}

TEST(CudaRoute, KeepsItsBudget) {
  const RouterCase c{"wide", 2048, 8, {.chosen = 1}};
  const Router router(c, 32, 7);
  DeviceBed bed(7);
  router.OnDevice(bed, 32, 8);
  const double bytes = 4.0 * 2048 * (32 + 8) + 2 * 4.0 * 32 * 8 + 3 * 4.0 * 32;
  ExpectWithinBudget(bed.runtime(), "route", bytes, 0);
}

TEST(CudaRoute, WhatItCannotTakeIsRefused) {
  DeviceBed bed;
  RouteParams params;
  params.tokens = 1;
  params.tile_rows = 8;
  for (const auto& [width, experts, chosen] :
       {std::array{12, 4, 1}, std::array{0, 4, 1}, std::array{8, 1025, 1}, std::array{8, 4, 5},
        std::array{8, 100, 65}, std::array{8, 4, 0}}) {
    params.width = width;
    params.experts = experts;
    params.rule.chosen = chosen;
    EXPECT_NE(LaunchRoute(bed.runtime(), bed.stream(), params), "") << width << " " << experts;
  }
}

TEST(CudaRoute, TilesAreAsManyAsTheyCanBe) {
  EXPECT_EQ(MostExpertTiles(8, 128, 8), 8);
  EXPECT_EQ(MostExpertTiles(512, 128, 8), 128 + 48);
  EXPECT_EQ(MostExpertTiles(9, 1, 8), 2);
  EXPECT_EQ(MostExpertTiles(1, 1, 8), 1);
  EXPECT_EQ(ExpertTileRows(8, 128), 8);
  EXPECT_EQ(ExpertTileRows(512, 128), 8);
  EXPECT_EQ(ExpertTileRows(1024, 128), 32);
  EXPECT_EQ(ExpertTileRows(16384, 128), 128);
}

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

// One that nobody chooses, one with many rows, others with few.
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

}  // namespace
}  // namespace quire::kernels::cuda::test
