// The host sampler against a float64 implementation of the same rules, and its draws against the
// distribution that they must have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "kernels/sampling/sampler.h"

namespace quire::kernels::sampling {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kGone = -std::numeric_limits<double>::infinity();

std::vector<float> RandomLogits(int count, uint32_t seed, float size) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<float> logits(count);
  for (float& z : logits) z = normal(random);
  return logits;
}

SampleOutput SampleOf(std::vector<float> logits, const SampleRow& row) {
  Sampler sampler;
  SampleOutput output;
  sampler.Sample(logits, row, output);
  return output;
}

SampleRow Greedy() {
  SampleRow row;
  row.temperature = 0.0f;
  return row;
}

std::vector<double> Softmax(const std::vector<double>& z) {
  const double top = *std::max_element(z.begin(), z.end());
  std::vector<double> p;
  for (double v : z) p.push_back(std::exp(v - top));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= sum;
  return p;
}

// Keeps the shortest prefix of `order` that has the mass; the rest of z is gone.
void KeepMass(std::vector<double>& z, const std::vector<int>& order, double mass) {
  const std::vector<double> p = Softmax(z);
  double sum = 0.0;
  for (int id : order) {
    if (sum >= mass) z[id] = kGone;
    sum += p[id];
  }
}

std::vector<int> Ordered(const std::vector<double>& key) {
  std::vector<int> order(key.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key[a] > key[b]; });
  return order;
}

// The distribution that a row samples from, in float64, straight from the definitions.
std::vector<double> Distribution(const std::vector<float>& logits, const SampleRow& row) {
  std::vector<double> z(logits.begin(), logits.end());
  for (size_t i = 0; i < z.size(); ++i) {
    if (!row.allowed_mask.empty() && ((row.allowed_mask[i / 32] >> (i % 32)) & 1) == 0)
      z[i] = kGone;
  }
  for (int32_t id : row.banned_ids) z[id] = kGone;
  for (const TokenBias& bias : row.logit_bias) z[bias.id] += bias.bias;
  for (const TokenCount& count : row.token_counts) {
    double& v = z[count.id];
    v = v > 0 ? v / row.repetition_penalty : v * row.repetition_penalty;
    v -= row.frequency_penalty * count.output_count;
    if (count.output_count > 0) v -= row.presence_penalty;
  }
  for (double& v : z) v /= row.temperature;
  const double top = *std::max_element(z.begin(), z.end());
  for (double& v : z) {
    if (row.min_p > 0 && std::exp(v - top) < row.min_p) v = kGone;
  }
  if (row.top_k > 0) {
    const std::vector<int> order = Ordered(z);
    for (size_t i = row.top_k; i < order.size(); ++i) z[order[i]] = kGone;
  }
  if (row.top_p < 1) KeepMass(z, Ordered(z), row.top_p);
  if (row.typical_p < 1) {
    const std::vector<double> p = Softmax(z);
    double entropy = 0.0;
    for (double v : p) entropy -= v > 0 ? v * std::log(v) : 0.0;
    std::vector<double> key;
    for (double v : p) key.push_back(v > 0 ? -std::fabs(-std::log(v) - entropy) : kGone);
    KeepMass(z, Ordered(key), row.typical_p);
  }
  return Softmax(z);
}

// Draws at many output indices; the counts must fit the distribution (chi-square, 6 sigma) and
// never hit a token of no probability.
void ExpectDistribution(const std::vector<float>& logits, SampleRow row, int draws) {
  const std::vector<double> p = Distribution(logits, row);
  std::vector<int> counts(logits.size());
  Sampler sampler;
  for (int i = 0; i < draws; ++i) {
    row.output_index = static_cast<uint64_t>(i);
    std::vector<float> z = logits;
    SampleOutput output;
    sampler.Sample(z, row, output);
    ASSERT_GE(output.token, 0);
    ++counts[output.token];
  }
  double chi_square = 0.0;
  double rest_wanted = 0.0;
  double rest_got = 0.0;
  int freedom = -1;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0.0) {
      EXPECT_EQ(counts[i], 0) << i;
    }
    if (p[i] * draws < 10) {
      rest_wanted += p[i] * draws;
      rest_got += counts[i];
      continue;
    }
    chi_square += (counts[i] - p[i] * draws) * (counts[i] - p[i] * draws) / (p[i] * draws);
    ++freedom;
  }
  if (rest_wanted >= 10) {
    chi_square += (rest_got - rest_wanted) * (rest_got - rest_wanted) / rest_wanted;
    ++freedom;
  }
  EXPECT_LT(chi_square, freedom + 6.0 * std::sqrt(2.0 * freedom + 1.0));
}

TEST(Sampler, GreedyTakesTheLowestOfEqualIds) {
  std::vector<float> logits = RandomLogits(3000, 1, 1.0f);
  logits[2500] = logits[1200] = logits[2999] = 9.0f;
  EXPECT_EQ(SampleOf(logits, Greedy()).token, 1200);
  EXPECT_EQ(SampleOf({-0.0f, 0.0f}, Greedy()).token, 0);
}

TEST(Sampler, NotANumberIsReported) {
  std::vector<float> logits = RandomLogits(100, 2, 1.0f);
  for (const float bad : {kNaN, -kNaN, std::numeric_limits<float>::infinity()}) {
    logits[77] = bad;
    const SampleOutput output = SampleOf(logits, Greedy());
    EXPECT_TRUE(output.not_a_number);
    EXPECT_EQ(output.token, -1);
  }
}

TEST(Sampler, NothingAllowedGivesNoToken) {
  const std::vector<uint32_t> mask = {0, 0};
  SampleRow row;
  row.allowed_mask = mask;
  const SampleOutput output = SampleOf(RandomLogits(64, 3, 1.0f), row);
  EXPECT_EQ(output.token, -1);
  EXPECT_FALSE(output.not_a_number);
}

TEST(Sampler, AMaskShorterThanTheVocabularyForbidsTheRest) {
  const std::vector<uint32_t> mask = {0b1000};
  SampleRow row = Greedy();
  row.allowed_mask = mask;
  EXPECT_EQ(SampleOf(RandomLogits(100, 4, 1.0f), row).token, 3);
}

// A mask that is all that changes a row is not written into it.
TEST(Sampler, AMaskChoosesAsLogitsThatAreGoneDo) {
  std::mt19937 random(11);
  for (const int count : {1, 7, 31, 33, 255, 256, 257, 700, 2048, 5003}) {
    for (int round = 0; round < 60; ++round) {
      std::vector<float> logits = RandomLogits(count, random(), 3.0f);
      if (round % 5 == 0) std::fill(logits.begin(), logits.end(), 1.5f);
      std::vector<uint32_t> mask(static_cast<size_t>(count + 31) / 32);
      const uint32_t every = 1 + random() % (round % 2 == 0 ? 3 : 400);
      for (int id = 0; id < count; ++id) {
        if (random() % every == 0) mask[id / 32] |= 1u << (id % 32);
      }
      if (round % 7 == 0) mask.resize(mask.size() / 2 + 1);
      SampleRow row;
      row.temperature = round % 3 == 0 ? 0.0f : 0.7f;
      row.seed = random();
      if (round % 4 == 1) row.top_k = 1 + static_cast<int32_t>(random() % 40);
      if (round % 4 == 2) row.top_p = 0.8f;
      if (round % 8 == 3) row.min_p = 0.05f;
      if (round % 8 == 7) row.typical_p = 0.9f;
      std::vector<float> gone = logits;
      for (int id = 0; id < count; ++id) {
        const size_t word = static_cast<size_t>(id) / 32;
        if (word >= mask.size() || (mask[word] >> (id % 32) & 1) == 0) gone[id] = kImpossible;
      }
      const int32_t wanted = SampleOf(gone, row).token;
      row.allowed_mask = mask;
      EXPECT_EQ(SampleOf(logits, row).token, wanted) << count << " " << round;
    }
  }
}

TEST(Sampler, LogprobsAreRawAndSorted) {
  std::vector<float> logits = RandomLogits(500, 5, 2.0f);
  logits[40] = logits[30] = 8.0f;
  const std::vector<int32_t> banned = {30};
  SampleRow row = Greedy();
  row.banned_ids = banned;
  row.logprobs = 1 + 5;
  const SampleOutput output = SampleOf(logits, row);
  const std::vector<double> p = Softmax({logits.begin(), logits.end()});
  EXPECT_EQ(output.token, 40);
  EXPECT_NEAR(output.logprob, std::log(p[40]), 1e-6);
  ASSERT_EQ(output.top_count, 5);
  EXPECT_EQ(output.top_ids[0], 30);
  EXPECT_EQ(output.top_ids[1], 40);
  for (int i = 0; i < 5; ++i) {
    EXPECT_NEAR(output.top_logprobs[i], std::log(p[output.top_ids[i]]), 1e-6);
    if (i == 0) continue;
    EXPECT_LE(output.top_logprobs[i], output.top_logprobs[i - 1]);
  }
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  SampleRow row;
  row.seed = 11;
  row.temperature = 0.7f;
  ExpectDistribution(RandomLogits(50, 6, 1.5f), row, 100000);
}

TEST(Sampler, DrawsFollowEveryFilter) {
  const std::vector<float> logits = RandomLogits(200, 7, 1.5f);
  const std::vector<int32_t> banned = {1, 5};
  const std::vector<TokenBias> bias = {{2, 3.0f}, {9, -1.0f}};
  const std::vector<TokenCount> counts = {{2, 3}, {4, 0}, {8, 1}};
  const std::vector<uint32_t> mask(7, 0xfffffffeu);
  for (int filter = 0; filter < 7; ++filter) {
    SCOPED_TRACE(filter);
    SampleRow row;
    row.seed = 100 + filter;
    row.banned_ids = banned;
    row.logit_bias = bias;
    row.token_counts = counts;
    row.allowed_mask = mask;
    row.repetition_penalty = 1.3f;
    row.frequency_penalty = 0.2f;
    row.presence_penalty = 0.4f;
    if (filter == 1 || filter == 5) row.top_k = 17;
    if (filter == 2 || filter == 5) row.top_p = 0.83f;
    if (filter == 3 || filter == 5) row.min_p = 0.04f;
    if (filter == 4 || filter == 5) row.typical_p = 0.71f;
    if (filter == 6) row.temperature = 1.7f;
    ExpectDistribution(logits, row, 100000);
  }
}

// The tokens that can ever be drawn.
std::set<int32_t> Reachable(const std::vector<float>& logits, SampleRow row) {
  std::set<int32_t> seen;
  for (int i = 0; i < 3000; ++i) {
    row.output_index = static_cast<uint64_t>(i);
    seen.insert(SampleOf(logits, row).token);
  }
  return seen;
}

TEST(Sampler, TiesAtACutGoToTheLowestIds) {
  const std::vector<float> equal(40, 1.0f);
  SampleRow row;
  row.top_k = 3;
  EXPECT_EQ(Reachable(equal, row), (std::set<int32_t>{0, 1, 2}));
  row.top_k = 0;
  row.top_p = 0.1f;  // a little more than four fortieths in float32
  EXPECT_EQ(Reachable(equal, row), (std::set<int32_t>{0, 1, 2, 3, 4}));
  row.top_p = 0.099f;
  EXPECT_EQ(Reachable(equal, row), (std::set<int32_t>{0, 1, 2, 3}));
  row.top_p = 1.0f;
  row.typical_p = 0.05f;
  EXPECT_EQ(Reachable(equal, row).size(), 3u);
}

TEST(Sampler, FiltersAlwaysLeaveAToken) {
  SampleRow row;
  row.top_p = 0.0f;
  row.min_p = 1.0f;
  row.typical_p = 0.0f;
  const std::vector<float> logits = {0.0f, 3.0f, 1.0f};
  EXPECT_EQ(SampleOf(logits, row).token, 1);
}

TEST(Sampler, ADrawDependsOnSeedIndexAndChoiceOnly) {
  const std::vector<float> logits(5000, 0.0f);
  SampleRow row;
  row.seed = 5;
  row.output_index = 3;
  row.choice = 1;
  const int32_t token = SampleOf(logits, row).token;
  EXPECT_EQ(SampleOf(logits, row).token, token);
  std::set<int32_t> others;
  for (int change = 0; change < 4; ++change) {
    SampleRow other = row;
    if (change == 0) other.seed = 6;
    if (change == 1) other.output_index = 4;
    if (change == 2) other.choice = 0;
    if (change == 3) other.output_index = 3 + (uint64_t{1} << 32);
    others.insert(SampleOf(logits, other).token);
  }
  EXPECT_EQ(others.count(token), 0u);
  EXPECT_EQ(others.size(), 4u);
}

TEST(Cut, FindsThresholdsExactlyOnLargeInputs) {
  std::mt19937 random(9);
  for (int round = 0; round < 20; ++round) {
    Candidates c;
    std::vector<std::pair<uint32_t, int>> sorted;
    for (int i = 0; i < 5000; ++i) {
      c.ids.push_back(i);
      c.distance.push_back(0.0f);
      c.order.push_back(round % 2 == 0 ? random() : 7u + random() % 40);
      c.mass.push_back(c.order.back() % 1000);
      sorted.emplace_back(~c.order.back(), i);
    }
    std::sort(sorted.begin(), sorted.end());
    const bool by_mass = round % 4 < 2;
    const uint64_t target = by_mass ? 1 + random() % 20000 : 1 + random() % 5000;
    std::set<int32_t> wanted;
    uint64_t sum = 0;
    for (size_t i = 0; i < sorted.size() && sum < target; ++i) {
      wanted.insert(sorted[i].second);
      sum += by_mass ? c.mass[sorted[i].second] : 1;
    }
    Cut(c, by_mass ? CutBy::kMass : CutBy::kCount, target);
    EXPECT_EQ(std::set<int32_t>(c.ids.begin(), c.ids.end()), wanted) << round;
  }
}

}  // namespace
}  // namespace quire::kernels::sampling
