// Rotary frequencies against values of the reference implementation (transformers 5.23.0, float32).
#include "worker/model/rope.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire::model {
namespace {

using load::RopeConfig;

void ExpectFrequencies(const kernels::Rope& rope, const std::vector<double>& expected) {
  ASSERT_EQ(rope.inverse_frequency.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(rope.inverse_frequency[i], expected[i], 2e-7 * expected[i]) << i;
  }
}

TEST(MakeRope, Plain) {
  const kernels::Rope rope = MakeRope(RopeConfig{}, 8, {});
  EXPECT_EQ(rope.rotary_dim, 8);
  EXPECT_EQ(rope.attention_factor, 1.0);
  ExpectFrequencies(rope, {1.0, 0.1, 0.01, 0.001});
}

TEST(MakeRope, LinearDividesEveryFrequency) {
  RopeConfig config;
  config.scaling = RopeConfig::Scaling::kLinear;
  config.factor = 4.0;
  ExpectFrequencies(MakeRope(config, 8, {}), {0.25, 0.025, 0.0025, 0.00025});
}

RopeConfig Llama3() {
  RopeConfig config;
  config.theta = 500'000.0;
  config.scaling = RopeConfig::Scaling::kLlama3;
  config.factor = 8.0;
  config.low_frequency_factor = 1.0;
  config.high_frequency_factor = 4.0;
  config.original_context = 64.0;
  return config;
}

TEST(MakeRope, Llama3KeepsShortWavesAndStretchesLongOnes) {
  ExpectFrequencies(MakeRope(Llama3(), 16, {}),
                    {1, 0.079403013, 0.00470075384, 0.000911583134, 0.000176776681, 3.42810235e-05,
                     6.64786967e-06, 1.28917316e-06});
}

TEST(MakeRope, YarnBlendsAlongTheDimensions) {
  RopeConfig config;
  config.scaling = RopeConfig::Scaling::kYarn;
  config.factor = 4.0;
  config.original_context = 128.0;
  config.attention_factor = load::YarnMagnitude(4.0);
  const kernels::Rope rope = MakeRope(config, 16, {});
  ExpectFrequencies(rope, {1, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994,
                           0.000790569466, 0.000250000012, 7.90569466e-05});
  EXPECT_NEAR(rope.attention_factor, 1.138629436111989, 1e-12);
}

TEST(MakeRope, FactorsOfAFileDivideOnTop) {
  const std::vector<float> factors = {1.0f, 2.0f, 4.0f, 8.0f};
  ExpectFrequencies(MakeRope(RopeConfig{}, 8, factors), {1.0, 0.05, 0.0025, 0.000125});
}

}  // namespace
}  // namespace quire::model
