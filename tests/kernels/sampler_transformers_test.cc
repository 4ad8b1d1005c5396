// Single parameters of the sampler against the logits processors of `transformers`
// (fixtures/make_logits_processors.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/sampling/sampler.h"

namespace quire::kernels::sampling {
namespace {

struct Case {
  std::string name;
  std::string parameter;
  int vocabulary = 0;
  uint64_t seed = 0;
  std::string expected;
};

std::vector<Case> ReadCases() {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) +
                     "/tests/kernels/fixtures/logits_processors.txt");
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    std::istringstream head(line.substr(0, colon));
    Case& c = cases.emplace_back();
    head >> c.name >> c.parameter >> c.vocabulary >> c.seed;
    c.expected = line.substr(colon + 2);
  }
  return cases;
}

// As the script draws them.
class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return state_ >> 40;
  }

 private:
  uint64_t state_;
};

std::vector<float> LogitsOf(const Case& c) {
  Draws draws(c.seed);
  std::vector<float> logits;
  for (int i = 0; i < c.vocabulary; ++i) {
    logits.push_back(static_cast<float>(static_cast<double>(draws.Next()) / 1048576.0 - 8.0));
  }
  return logits;
}

std::set<int32_t> IdsOf(const Case& c, int count) {
  Draws draws(c.seed + 1000);
  std::set<int32_t> ids;
  for (int i = 0; i < count; ++i) {
    ids.insert(static_cast<int32_t>(draws.Next() % static_cast<uint64_t>(c.vocabulary)));
  }
  return ids;
}

void ExpectCut(const Case& c) {
  SampleRow row;
  if (c.name == "top_k") row.top_k = std::stoi(c.parameter);
  if (c.name == "top_p") row.top_p = std::stof(c.parameter);
  if (c.name == "min_p") row.min_p = std::stof(c.parameter);
  if (c.name == "typical_p") row.typical_p = std::stof(c.parameter);
  std::istringstream expected(c.expected);
  std::vector<int32_t> wanted;
  for (int32_t id = 0; expected >> id;) wanted.push_back(id);
  std::vector<float> logits = LogitsOf(c);
  Sampler sampler;
  SampleOutput output;
  sampler.Sample(logits, row, output);
  EXPECT_EQ(sampler.candidates().ids, wanted);
  EXPECT_EQ(std::count(wanted.begin(), wanted.end(), output.token), 1);
}

void ExpectChange(const Case& c) {
  std::vector<float> wanted = LogitsOf(c);
  std::vector<float> logits = wanted;
  std::istringstream expected(c.expected);
  int changes = 0;
  for (int32_t id = 0; expected >> id; ++changes) expected >> wanted[static_cast<size_t>(id)];
  ASSERT_GT(changes, 0);
  SampleRow row;
  std::vector<TokenCount> counts;
  std::vector<TokenBias> bias;
  if (c.name == "repetition_penalty") {
    row.repetition_penalty = std::stof(c.parameter);
    for (int32_t id : IdsOf(c, 12)) counts.push_back({id, 0});
  } else {
    std::istringstream pairs(c.parameter);
    for (std::string pair; std::getline(pairs, pair, '|');) {
      bias.push_back({std::stoi(pair), std::stof(pair.substr(pair.find(',') + 1))});
    }
  }
  row.token_counts = counts;
  row.logit_bias = bias;
  Sampler sampler;
  SampleOutput output;
  sampler.Sample(logits, row, output);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(logits[i], wanted[i], 1e-6f * std::fabs(wanted[i])) << i;
  }
}

TEST(SamplerAgainstTransformers, SingleProcessors) {
  std::map<std::string, int> seen;
  for (const Case& c : ReadCases()) {
    SCOPED_TRACE(c.name + " " + c.parameter + " " + std::to_string(c.seed));
    ++seen[c.name];
    if (c.name == "bad_words") continue;  // the worker's: tests/worker/sample
    if (c.name == "repetition_penalty" || c.name == "logit_bias") {
      ExpectChange(c);
    } else {
      ExpectCut(c);
    }
  }
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(seen["typical_p"], 24);
}

}  // namespace
}  // namespace quire::kernels::sampling
