// Random mixes of all sampling parameters over random logits.
//
// Values of one test.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/sampling/sample_row.h"
#include "kernels/sampling/scan.h"

namespace quire::kernels::sampling {

// One random request, and what its row refers to.
struct Case {
  std::vector<float> logits;
  std::vector<uint32_t> mask;
  std::vector<int32_t> banned;
  std::vector<TokenBias> bias;
  std::vector<TokenCount> counts;
  SampleRow row;
};

template <class Rng>
Case RandomCase(Rng& random) {
  const auto chance = [&](int one_in) { return random() % one_in == 0; };
  const auto uniform = [&](float low, float high) {
    return low + (high - low) * static_cast<float>(random() % 100001) / 100000.0f;
  };
  Case c;
  const int sizes[] = {1, 2, 7, 40, 255, 256, 300, 1500, 5000};
  const int vocab = sizes[random() % 9];
  const float size = uniform(0.3f, 8.0f);
  const bool tied = chance(4);
  std::normal_distribution<float> normal(0.0f, size);
  for (int i = 0; i < vocab; ++i) {
    float z = normal(random);
    if (tied) z = std::round(z);
    if (chance(50)) z = kImpossible;
    c.logits.push_back(z);
  }
  c.logits[random() % vocab] = 1.0f;  // one is possible
  const auto ids = [&](int one_in) {
    std::vector<int32_t> list;
    for (int32_t id = 0; id < vocab; ++id) {
      if (chance(one_in)) list.push_back(id);
    }
    return list;
  };
  if (chance(4)) {
    c.mask.resize((vocab + 31) / 32);
    for (uint32_t& word : c.mask) word = chance(3) ? 0xffffffffu : static_cast<uint32_t>(random());
  }
  if (chance(3)) c.banned = ids(20);
  if (chance(3)) {
    for (int32_t id : ids(15)) c.bias.push_back({id, uniform(-5.0f, 5.0f)});
  }
  SampleRow& row = c.row;
  if (chance(2)) {
    for (int32_t id : ids(6)) c.counts.push_back({id, static_cast<int32_t>(random() % 4)});
    if (chance(2)) row.repetition_penalty = uniform(0.5f, 2.0f);
    if (chance(2)) row.frequency_penalty = uniform(-2.0f, 2.0f);
    if (chance(2)) row.presence_penalty = uniform(-2.0f, 2.0f);
  }
  row.temperature = chance(6) ? 0.0f : uniform(0.05f, 3.0f);
  if (chance(3)) row.top_k = 1 + static_cast<int32_t>(random() % (chance(2) ? 20 : vocab));
  if (chance(2)) row.top_p = uniform(0.02f, 0.999f);
  if (chance(4)) row.min_p = uniform(0.0001f, 0.5f);
  if (chance(5)) row.typical_p = uniform(0.05f, 0.99f);
  row.logprobs = static_cast<int32_t>(random() % 22);
  row.seed = random();
  row.choice = static_cast<uint32_t>(random() % 5);
  row.output_index = random() % 1000;
  return c;
}

inline SampleRow RowOf(const Case& c) {
  SampleRow row = c.row;
  row.allowed_mask = c.mask;
  row.banned_ids = c.banned;
  row.logit_bias = c.bias;
  row.token_counts = c.counts;
  return row;
}

}  // namespace quire::kernels::sampling
