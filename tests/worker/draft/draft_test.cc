// What drafters propose, how many drafts pay, and what --speculative-config may say.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "worker/core/step_plan.h"
#include "worker/draft/draft_history.h"
#include "worker/draft/speculation.h"

namespace quire {
namespace {

using Tokens = std::vector<TokenId>;

// What a drafter proposes for one row.
Tokens Propose(Drafter& drafter, const Tokens& tokens, int32_t prompt_length, int32_t wanted,
               const Tokens& prediction = {}, uint64_t sequence = 1) {
  Tokens drafts;
  const SamplingParams sampling;
  const DraftRow row{.sequence = sequence,
                     .tokens = tokens,
                     .prompt_length = prompt_length,
                     .choice = 0,
                     .sampling = &sampling,
                     .end_ids = {},
                     .prediction = prediction,
                     .cache = nullptr,
                     .wanted = wanted,
                     .drafts = &drafts};
  drafter.Propose({&row, 1});
  return drafts;
}

TEST(NgramDrafterTest, ProposesWhatFollowedTheSameTokens) {
  NgramDrafter drafter({.min_tokens = 2, .max_tokens = 4});
  EXPECT_EQ(Propose(drafter, {1, 2, 3, 4, 5, 1, 2}, 5, 3), (Tokens{3, 4})) << "two agree";
  EXPECT_EQ(Propose(drafter, {1, 2, 3, 4, 5, 1, 2, 3}, 5, 2), (Tokens{4, 5}));
  EXPECT_EQ(Propose(drafter, {1, 2, 3, 4, 5, 1, 2, 3, 9}, 5, 3), (Tokens{}));
}

TEST(NgramDrafterTest, TheLongestAgreementWinsThenTheLatest) {
  NgramDrafter drafter({.min_tokens = 1, .max_tokens = 3});
  // "7 8 → 1" once, "8 → 2" later: two tokens agree with the first place.
  EXPECT_EQ(Propose(drafter, {7, 8, 1, 6, 8, 2, 5, 7, 8}, 7, 1), (Tokens{1}));
  EXPECT_EQ(Propose(drafter, {3, 4, 9, 3, 5, 9, 3}, 6, 1, {}, 2), (Tokens{5}));
}

TEST(NgramDrafterTest, ARepetitionGoesOnPastTheEnd) {
  NgramDrafter drafter({.min_tokens = 2, .max_tokens = 2});
  EXPECT_EQ(Propose(drafter, {4, 4, 4}, 1, 5), (Tokens{4, 4, 4, 4, 4}));
  EXPECT_EQ(Propose(drafter, {1, 2, 3, 1, 2, 3, 1, 2}, 1, 7, {}, 2), (Tokens{3, 1, 2, 3, 1, 2, 3}));
}

TEST(NgramDrafterTest, APredictionIsFollowedFromItsStartAndFoundAgain) {
  NgramDrafter drafter({.min_tokens = 2, .max_tokens = 3});
  const Tokens prediction = {10, 11, 12, 13, 14, 15};
  EXPECT_EQ(Propose(drafter, {1, 2, 10}, 2, 3, prediction), (Tokens{11, 12, 13}));
  EXPECT_EQ(Propose(drafter, {1, 2, 10, 11, 99}, 2, 3, prediction), (Tokens{}));
  EXPECT_EQ(Propose(drafter, {1, 2, 10, 11, 99, 12, 13}, 2, 9, prediction), (Tokens{14, 15}));
}

TEST(NgramDrafterTest, APredictionIsFollowedFromOutputsThatWereThereBefore) {
  NgramDrafter drafter({.min_tokens = 5, .max_tokens = 5});
  const Tokens prediction = {10, 11, 12, 13, 14, 15};
  EXPECT_EQ(Propose(drafter, {1, 2, 10, 11, 12}, 2, 2, prediction), (Tokens{13, 14}));
  EXPECT_EQ(Propose(drafter, {1, 2, 10, 11, 12, 13, 14, 15}, 2, 2, prediction), (Tokens{}))
      << "its end";
  EXPECT_EQ(Propose(drafter, {1, 2, 10, 99, 12}, 2, 2, prediction, 2), (Tokens{})) << "off it";
}

// Against the plainest search, over texts of a few letters.
TEST(NgramDrafterTest, FindsWhatASearchOfTheWholeTextFinds) {
  std::mt19937_64 rng(3);
  NgramDrafter drafter({.min_tokens = 3, .max_tokens = 3});
  Tokens text;
  int found = 0;
  for (int i = 0; i < 3000; ++i) {
    text.push_back(static_cast<TokenId>(rng() % 6));
    const Tokens drafts = Propose(drafter, text, 1, 1);
    Tokens want;
    for (size_t at = text.size() - 1; at-- > 2 && text.size() > 3;) {
      if (!std::equal(text.end() - 3, text.end(), text.begin() + static_cast<ptrdiff_t>(at) - 2)) {
        continue;
      }
      want = {text[at + 1]};
      break;
    }
    // A table of hashes may name places with another ending first, and the drafter looks at few.
    if (!drafts.empty() || i < 200) {
      ASSERT_EQ(drafts, want) << i;
    }
    found += !drafts.empty();
  }
  EXPECT_GT(found, 2000);
}

TEST(DraftHistoryTest, ARowAloneDraftsWhileItIsRightAndStopsWhenItIsNot) {
  DraftHistory history;
  const auto wanted = [&history](double rows) {
    DraftStep step{.micros = 1000, .tokens = rows};
    return WorthDrafting(history.Chance(), 100, 8, step);
  };
  EXPECT_EQ(wanted(1), 8) << "a row begins with what is configured";
  EXPECT_EQ(wanted(10), 0) << "in a full batch a token costs what it brings";
  int64_t length = 100;
  for (int i = 0; i < 20; ++i) history.Add(4, 0, ++length);
  EXPECT_EQ(wanted(1), 0);
  EXPECT_FALSE(history.ProbeDue(length + kDraftProbeTokens - 1));
  EXPECT_TRUE(history.ProbeDue(length + kDraftProbeTokens));
  for (int i = 0; i < 4; ++i) history.Add(2, 2, ++length);
  EXPECT_GE(wanted(1), 4) << "it comes back";
}

// Three rows, of which two fit: the one that was named the longest time ago gives way, and reads
// its text again.
TEST(NgramDrafterTest, AllTextsTogetherHaveALimit) {
  const Tokens row = {1, 2, 3, 4, 1, 2};
  NgramDrafter drafter({.min_tokens = 2, .max_tokens = 2, .most_tokens = 2 * row.size()});
  for (const uint64_t sequence : {1, 2}) {
    EXPECT_EQ(Propose(drafter, row, 4, 2, {}, sequence), (Tokens{3, 4}));
  }
  EXPECT_EQ(drafter.held_tokens(), 2 * row.size()) << "at the limit";
  EXPECT_EQ(drafter.Evictions(), 0u);
  EXPECT_EQ(Propose(drafter, row, 4, 2, {}, 3), (Tokens{3, 4}));
  EXPECT_EQ(drafter.Evictions(), 1u) << "of the first";
  EXPECT_EQ(Propose(drafter, row, 4, 2, {}, 1), (Tokens{3, 4}));
  EXPECT_EQ(drafter.Evictions(), 2u) << "of the second";
  EXPECT_EQ(drafter.held_tokens(), 2 * row.size());
  drafter.Forget(1);
  drafter.Forget(3);
  EXPECT_EQ(drafter.held_tokens(), 0u);
}

// A row alone above the limit, its prediction counted, has no drafts and holds nothing.
TEST(NgramDrafterTest, ATextAboveTheLimitIsNotKept) {
  const Tokens row = {1, 2, 3, 4, 1, 2}, prediction = {7, 8};
  const size_t all = row.size() + prediction.size() + 1;
  NgramDrafter fits({.min_tokens = 2, .max_tokens = 2, .most_tokens = all});
  EXPECT_EQ(Propose(fits, row, 4, 2, prediction), (Tokens{3, 4}));
  EXPECT_EQ(fits.held_tokens(), all);
  Tokens longer = row;
  longer.push_back(3);
  EXPECT_EQ(Propose(fits, longer, 4, 2, prediction), Tokens{}) << "it has grown beyond the limit";
  EXPECT_EQ(fits.held_tokens(), 0u);
  NgramDrafter small({.min_tokens = 2, .max_tokens = 2, .most_tokens = all - 1});
  EXPECT_EQ(Propose(small, row, 4, 2, prediction), Tokens{});
  EXPECT_EQ(small.held_tokens(), 0u);
}

TEST(DraftStartTest, RowsBeginWithTheChanceOfOthers) {
  DraftStart start;
  EXPECT_NEAR(start.Chance(), 0.9, 1e-9) << "the first rows draft what is configured";
  for (int row = 0; row < 5; ++row) start.Add(6, 0);
  EXPECT_LT(start.Chance(), 0.6);
  for (int row = 0; row < 50; ++row) start.Add(6, 0);
  EXPECT_EQ(start.Chance(), 0.5) << "one draft is tried wherever that may pay";
  for (int row = 0; row < 10; ++row) start.Add(1, 1);
  EXPECT_GT(start.Chance(), 0.6) << "one right draft of each row brings it back";
}

TEST(SpeculationTest, ReadsWhatVllmReads) {
  const auto ngram = ParseSpeculation(
      R"({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4,
          "prompt_lookup_min": 2})");
  ASSERT_TRUE(ngram.ok()) << StatusMessage(ngram.status());
  EXPECT_EQ(ngram->num_speculative_tokens, 5);
  EXPECT_EQ(ngram->ngram.min_tokens, 2);
  EXPECT_EQ(ngram->ngram.max_tokens, 4);
  EXPECT_NE(MakeDrafter(*ngram), nullptr);
  const auto one = ParseSpeculation(
      R"({"method": "ngram", "num_speculative_tokens": 1, "prompt_lookup_max": 3})");
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->ngram.min_tokens, 3);
  for (const char* text :
       {R"({"method": "draft_model", "model": "small", "num_speculative_tokens": 3})",
        R"({"model": "small", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1})"}) {
    const auto model = ParseSpeculation(text);
    ASSERT_TRUE(model.ok()) << StatusMessage(model.status());
    EXPECT_EQ(model->method, "draft_model");
    EXPECT_EQ(model->model, "small");
    EXPECT_EQ(model->num_speculative_tokens, 3);
  }
  const auto part = ParseSpeculation(
      R"({"method": "layer_skip", "skip_layers": [7, 2, 7], "num_speculative_tokens": 3})");
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->skipped_layers, (std::vector<int>{2, 7}));
  EXPECT_TRUE(part->HasModel());
  for (const auto& [text, head] :
       {std::pair(R"({"method": "medusa", "model": "heads", "num_speculative_tokens": 3})",
                  HeadMethod::kMedusa),
        std::pair(R"({"method": "eagle3", "model": "heads", "num_speculative_tokens": 3,
                      "draft_tensor_parallel_size": 1})",
                  HeadMethod::kEagle3),
        std::pair(R"({"method": "mtp", "num_speculative_tokens": 3})", HeadMethod::kMtp)}) {
    const auto parsed = ParseSpeculation(text);
    ASSERT_TRUE(parsed.ok()) << StatusMessage(parsed.status());
    EXPECT_EQ(parsed->head, head);
    EXPECT_TRUE(parsed->HasHead());
    EXPECT_FALSE(parsed->HasModel()) << "it is no second model";
    EXPECT_EQ(parsed->model, head == HeadMethod::kMtp ? "" : "heads");
  }
  const auto none = ParseSpeculation("");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(MakeDrafter(*none), nullptr);
}

TEST(SpeculationTest, RefusesByNameWithWhatWorks) {
  const auto refused = [](const char* text, std::string_view key, std::string_view hint) {
    const auto parsed = ParseSpeculation(text);
    ASSERT_FALSE(parsed.ok()) << text;
    const std::string message = StatusMessage(parsed.status());
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find(hint), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  refused("{", "", "");
  refused("[]", "its value", "object");
  refused(R"({"num_speculative_tokens": 2})", "method", "ngram");
  refused(R"({"method": "eagle", "num_speculative_tokens": 2})", "eagle", "eagle3");
  refused(R"({"method": "eagle3", "num_speculative_tokens": 2})", "model", "draft head");
  refused(R"({"method": "medusa", "num_speculative_tokens": 2, "model": ""})", "model", "empty");
  refused(R"({"method": "mtp", "num_speculative_tokens": 2, "model": "a"})", "model",
          "draft_tensor_parallel_size");
  refused(R"({"method": "draft_model", "num_speculative_tokens": 2})", "model", "same vocabulary");
  refused(R"({"method": "layer_skip", "num_speculative_tokens": 2})", "skip_layers", "[8, 9]");
  refused(R"({"method": "layer_skip", "num_speculative_tokens": 2, "skip_layers": []})",
          "skip_layers", "at least one");
  refused(R"({"method": "layer_skip", "num_speculative_tokens": 2, "skip_layers": [-1]})",
          "skip_layers", "-1");
  refused(R"({"method": "layer_skip", "num_speculative_tokens": 2, "skip_layers": "3"})",
          "skip_layers", "list");
  refused(R"({"model": "", "num_speculative_tokens": 2})", "model", "empty");
  refused(R"({"model": 3, "num_speculative_tokens": 2})", "model", "string");
  refused(R"({"model": "a", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 2})",
          "draft_tensor_parallel_size", "1");
  refused(R"({"method": "ngram"})", "num_speculative_tokens", "1 to 32");
  refused(R"({"method": "ngram", "num_speculative_tokens": 33})", "num_speculative_tokens", "32");
  refused(R"({"method": "ngram", "num_speculative_tokens": 0})", "num_speculative_tokens", "32");
  refused(R"({"method": "ngram", "num_speculative_tokens": 2, "foo": 1})", "foo",
          "prompt_lookup_max");
  refused(
      R"({"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 4,
          "prompt_lookup_max": 3})",
      "prompt_lookup_min", "3");
  refused(R"({"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 33})",
          "prompt_lookup_max", "32");
}

TEST(SpeculationTest, DraftsAreAcceptedUpToTheFirstDifference) {
  const Tokens drafts = {4, 5, 6};
  const auto samples = [](std::initializer_list<TokenId> tokens) {
    std::vector<SampledToken> list;
    for (const TokenId token : tokens) list.emplace_back().token = token;
    return list;
  };
  EXPECT_EQ(AcceptedDrafts(drafts, samples({4, 5, 6, 7})), 3u);
  EXPECT_EQ(AcceptedDrafts(drafts, samples({4, 9, 6, 7})), 1u);
  EXPECT_EQ(AcceptedDrafts(drafts, samples({-1, 5, 6, 7})), 0u);
  EXPECT_EQ(AcceptedDrafts({}, samples({1})), 0u);
}

}  // namespace
}  // namespace quire
