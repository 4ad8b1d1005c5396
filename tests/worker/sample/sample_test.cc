// Parameters and tokens so far become a sampling row; stop rules find the one end of a choice.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "worker/sample/row_sampler.h"
#include "worker/sample/stop_rules.h"

namespace quire {
namespace {

std::vector<int32_t> Ids(std::span<const int32_t> ids) { return {ids.begin(), ids.end()}; }

TEST(StopRulesTest, EndIdsAreStopIdsAndTheModelsOwn) {
  SamplingParams params;
  params.stop_token_ids = {9, 3, 9};
  const std::vector<TokenId> eos = {5, 3};
  EXPECT_EQ(EndIds(params, eos), (std::vector<TokenId>{3, 5, 9}));
  params.ignore_eos = true;
  EXPECT_EQ(EndIds(params, eos), (std::vector<TokenId>{3, 9}));
}

TEST(StopRulesTest, OrderOfEnds) {
  const std::vector<TokenId> end_ids = {3, 5};
  const StopRules rules{end_ids, 2, 4};
  EXPECT_FALSE(CheckStop(rules, 7, 3).has_value());
  EXPECT_FALSE(CheckStop(rules, 5, 2).has_value());  // among the first min_tokens
  const auto stop = CheckStop(rules, 5, 4);          // both: the token is the reason
  ASSERT_TRUE(stop.has_value());
  EXPECT_EQ(stop->reason, EndReason::kStop);
  EXPECT_TRUE(stop->by_stop_token);
  EXPECT_EQ(stop->stop_token_id, 5);
  const auto length = CheckStop(rules, 7, 4);
  ASSERT_TRUE(length.has_value());
  EXPECT_EQ(length->reason, EndReason::kLength);
  EXPECT_FALSE(length->by_stop_token);
}

TEST(StopRulesTest, TheContextLimitsOutputs) {
  SamplingParams params;
  params.max_tokens = 100;
  EXPECT_EQ(OutputLimit(params, 10, 2048), 100);
  EXPECT_EQ(OutputLimit(params, 10, 50), 40);
}

TEST(RowSamplerTest, CountsAreSortedAndTellPromptFromOutput) {
  SamplingParams params;
  params.repetition_penalty = 1.1f;
  RowSampler sampler;
  sampler.Reset(params, 0, {}, 100);
  for (TokenId token : {9, 4, 9, 70}) sampler.Observe(token, false);
  kernels::SampleRow row = sampler.Row({});
  ASSERT_EQ(row.token_counts.size(), 3u);
  EXPECT_EQ(row.token_counts[0].id, 4);
  EXPECT_EQ(row.token_counts[1].id, 9);
  EXPECT_EQ(row.token_counts[1].output_count, 0);
  const std::vector<TokenId> outputs = {9, 1, 9};
  for (TokenId token : outputs) sampler.Observe(token, true);
  row = sampler.Row(outputs);
  ASSERT_EQ(row.token_counts.size(), 4u);
  EXPECT_EQ(row.token_counts[0].id, 1);
  EXPECT_EQ(row.token_counts[0].output_count, 1);
  EXPECT_EQ(row.token_counts[2].id, 9);
  EXPECT_EQ(row.token_counts[2].output_count, 2);
  EXPECT_EQ(row.output_index, 3u);
}

// Told at once (a resumed row) or one by one (a running one): the same row.
TEST(RowSamplerTest, ResumedEqualsRunning) {
  SamplingParams params;
  params.presence_penalty = 0.5f;
  params.bad_words = {{1, 2}};
  params.min_tokens = 9;
  const std::vector<TokenId> outputs = {5, 5, 1};
  RowSampler running;
  RowSampler resumed;
  running.Reset(params, 1, {7}, 100);
  resumed.Reset(params, 1, {7}, 100);
  for (size_t i = 0; i < outputs.size(); ++i) {
    running.Observe(outputs[i], true);
    running.Row(std::span(outputs).first(i + 1));
    resumed.Observe(outputs[i], true);
  }
  const kernels::SampleRow a = running.Row(outputs);
  const kernels::SampleRow b = resumed.Row(outputs);
  ASSERT_EQ(a.token_counts.size(), b.token_counts.size());
  for (size_t i = 0; i < a.token_counts.size(); ++i) {
    EXPECT_EQ(a.token_counts[i].id, b.token_counts[i].id);
    EXPECT_EQ(a.token_counts[i].output_count, b.token_counts[i].output_count);
  }
  EXPECT_EQ(Ids(a.banned_ids), Ids(b.banned_ids));
  EXPECT_EQ(Ids(a.banned_ids), (std::vector<int32_t>{2, 7}));
}

TEST(RowSamplerTest, WithoutPenaltiesNothingIsCounted) {
  RowSampler sampler;
  sampler.Reset({}, 0, {}, 100);
  sampler.Observe(5, true);
  const std::vector<TokenId> outputs = {5};
  EXPECT_TRUE(sampler.Row(outputs).token_counts.empty());
}

TEST(RowSamplerTest, BadWordsCompleteOnlyAfterTheirLead) {
  SamplingParams params;
  params.bad_words = {{8}, {1, 2, 3}, {2, 4}};
  RowSampler sampler;
  sampler.Reset(params, 0, {50}, 100);
  const std::vector<TokenId> none;
  EXPECT_EQ(Ids(sampler.Row(none).banned_ids), (std::vector<int32_t>{8}));
  const std::vector<TokenId> lead = {7, 1, 2};
  EXPECT_EQ(Ids(sampler.Row(lead).banned_ids), (std::vector<int32_t>{3, 4, 8}));
}

TEST(RowSamplerTest, MinTokensAllowedIdsAndBias) {
  SamplingParams params;
  params.min_tokens = 2;
  params.allowed_token_ids = {0, 33, 99};
  params.logit_bias = {{40, 1.0f}, {3, -2.0f}};
  RowSampler sampler;
  sampler.Reset(params, 6, {20, 30}, 100);
  const std::vector<TokenId> outputs = {1, 2};
  kernels::SampleRow row = sampler.Row(std::span(outputs).first(1));
  EXPECT_EQ(Ids(row.banned_ids), (std::vector<int32_t>{20, 30}));
  EXPECT_EQ(row.choice, 6u);
  ASSERT_EQ(row.allowed_mask.size(), 4u);
  EXPECT_EQ(row.allowed_mask[0], 1u);
  EXPECT_EQ(row.allowed_mask[1], 2u);
  EXPECT_EQ(row.allowed_mask[3], 8u);
  ASSERT_EQ(row.logit_bias.size(), 2u);
  EXPECT_EQ(row.logit_bias[0].id, 3);
  row = sampler.Row(outputs);
  EXPECT_TRUE(row.banned_ids.empty());
}

// Behind drafts a row is what it would be if they were outputs.
TEST(RowSamplerTest, DraftsCountAsOutputsForTheirPositionsAlone) {
  SamplingParams params;
  params.frequency_penalty = 0.5f;
  params.min_tokens = 4;
  params.bad_words = {{7, 8, 9}};
  params.seed = 11;
  const std::vector<TokenId> outputs = {5, 3, 7, 8, 3};
  const auto observe = [&](RowSampler& sampler, size_t count) {
    sampler.Reset(params, 2, {20}, 100);
    sampler.Observe(5, false);
    for (size_t i = 0; i < count; ++i) sampler.Observe(outputs[i], true);
  };
  RowSampler drafting;
  observe(drafting, 2);
  const kernels::SampleRow before = drafting.Row(std::span(outputs).first(2));
  std::vector<kernels::SampleRow> rows;
  for (size_t drafted = 1; drafted <= 3; ++drafted) {
    rows.push_back(drafting.DraftRow(std::span(outputs).first(2 + drafted), drafted));
  }
  const auto counts = [](const kernels::SampleRow& row) {
    std::map<int32_t, int32_t> by_id;
    for (const kernels::TokenCount& count : row.token_counts) by_id[count.id] = count.output_count;
    return by_id;
  };
  for (size_t drafted = 1; drafted <= 3; ++drafted) {
    SCOPED_TRACE(drafted);
    RowSampler accepted;
    observe(accepted, 2 + drafted);
    const kernels::SampleRow want = accepted.Row(std::span(outputs).first(2 + drafted));
    const kernels::SampleRow& row = rows[drafted - 1];
    EXPECT_EQ(row.output_index, want.output_index);
    EXPECT_EQ(row.choice, want.choice);
    EXPECT_EQ(row.seed, want.seed);
    EXPECT_EQ(Ids(row.banned_ids), Ids(want.banned_ids));
    EXPECT_EQ(counts(row), counts(want));
  }
  // Nothing of them stays.
  EXPECT_EQ(counts(before), (std::map<int32_t, int32_t>{{3, 1}, {5, 1}}));
  EXPECT_EQ(Ids(before.banned_ids), (std::vector<int32_t>{20}));
}

// Sequences forbidden by `transformers` (tests/kernels/fixtures/make_logits_processors.py).
TEST(RowSamplerTest, BadWordsAsTransformersForbidsThem) {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) +
                     "/tests/kernels/fixtures/logits_processors.txt");
  const auto numbers = [](const std::string& text, char separator) {
    std::vector<TokenId> ids;
    std::istringstream in(text);
    for (std::string id; std::getline(in, id, separator);) ids.push_back(std::stoi(id));
    return ids;
  };
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("bad_words ", 0) != 0) continue;
    SCOPED_TRACE(line);
    ++cases;
    const size_t colon = line.find(": ");
    const std::string parameter = line.substr(10, line.find(' ', 10) - 10);
    const size_t slash = parameter.find('/');
    SamplingParams params;
    std::istringstream words(parameter.substr(0, slash));
    for (std::string word; std::getline(words, word, '|');) {
      params.bad_words.push_back(numbers(word, ','));
    }
    RowSampler sampler;
    sampler.Reset(params, 0, {}, 60);
    const std::vector<TokenId> outputs = numbers(parameter.substr(slash + 1), ',');
    EXPECT_EQ(Ids(sampler.Row(outputs).banned_ids), numbers(line.substr(colon + 2), ' '));
  }
  EXPECT_EQ(cases, 120);
}

}  // namespace
}  // namespace quire
