// Routing: choices with the bits of the CPU backend, rows by expert, tiles that hold them all.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cuda/ops/moe/grouped_product.h"
#include "kernels/cuda/ops/moe/route.h"
#include "tests/kernels/cuda/device_bed.h"

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

}  // namespace
}  // namespace quire::kernels::cuda::test
