// Routers that do not speak to each other, over one fleet (bench/fleet): each finds what the others
// put there, for all of them hear of every cache.
#include "bench/fleet/fleet_model.h"

#include <gtest/gtest.h>

namespace quire::bench {
namespace {

FleetModelOptions SmallFleet() {
  FleetModelOptions options;
  options.workers = 16;
  options.groups = 128;
  options.prefix = 512;
  options.question = 64;
  options.output = 32;
  options.requests = 2500;
  options.warm_up = 1000;
  options.per_second = 400;
  options.cache_blocks = 1200;
  return options;
}

TEST(FleetModel, MoreRoutersFindNoLessAndSpreadNoWorse) {
  FleetModelOptions options = SmallFleet();
  const FleetModelResult one = RunFleetModel(options);
  for (const int32_t routers : {2, 8}) {
    options.routers = routers;
    const FleetModelResult several = RunFleetModel(options);
    EXPECT_GE(several.hit_rate_over_oracle, one.hit_rate_over_oracle - 0.02) << routers;
    EXPECT_LE(several.load_spread, one.load_spread + 0.1) << routers;
    EXPECT_EQ(several.predictions_wrong, 0u);
    EXPECT_GT(several.predictions_exact, 10 * several.predictions_raced);
  }
  EXPECT_GE(one.hit_rate_over_oracle, 0.9);
  EXPECT_EQ(one.predictions_wrong, 0u);
}

TEST(FleetModel, PrefixAwareFindsMoreThanRoundRobinAndEachRunIsTheSame) {
  FleetModelOptions options = SmallFleet();
  const FleetModelResult aware = RunFleetModel(options);
  EXPECT_EQ(RunFleetModel(options).hit_rate, aware.hit_rate);
  options.policy = "round-robin";
  const FleetModelResult blind = RunFleetModel(options);
  EXPECT_GT(aware.hit_rate, blind.hit_rate + 0.1);
  EXPECT_LT(aware.first_token_ms_mean, blind.first_token_ms_mean);
}

// Short prompts that come again, half of what the workers' few rows can do: what a cache saves of
// one is nothing beside the end of an answer that a row has to be waited for.
TEST(FleetModel, NobodyWaitsForARowToSaveALittlePrefill) {
  FleetModelOptions options = SmallFleet();
  options.max_rows = 4;
  options.step_us = 40'000;
  options.groups = 800;
  options.skew = 0;
  options.prefix = 48;
  options.question = 16;
  options.output = 16;
  options.per_second = 50;
  for (options.seed = 1; options.seed <= 3; ++options.seed) {
    const FleetModelResult result = RunFleetModel(options);
    // The step under way, its own one, and the prefill in both.
    EXPECT_LT(result.first_token_ms_p99, 2.2 * options.step_us / 1000) << options.seed;
    EXPECT_GE(result.hit_rate_over_oracle, 0.75) << options.seed;
  }
}

}  // namespace
}  // namespace quire::bench
