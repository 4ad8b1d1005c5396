// Drafts of heads, token by token as the published definitions compute them, however the target's
// steps are cut and whoever else is in them.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "tests/worker/heads/head_world.h"

namespace quire::test {
namespace {

constexpr int32_t kDrafts = 4;

class HeadGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    golden_ = ReadGolden(GetParam());
    folder_ = testing::TempDir() + "/head_golden_" + GetParam();
    std::filesystem::remove_all(folder_);
    WriteFolder(folder_ + "/target", golden_.target_config, golden_.target);
    if (!golden_.head_config.empty()) {
      const bool own_name = std::string(GetParam()) == "medusa";
      WriteFolder(folder_ + "/head", golden_.head_config, golden_.head,
                  own_name ? "medusa_lm_head.safetensors" : "model.safetensors");
    }
    options_.target = folder_ + "/target";
    options_.speculation = Speculation(kDrafts);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Speculation(int32_t drafts) const {
    std::string text = R"({"method": ")" + golden_.method + R"(", "num_speculative_tokens": )" +
                       std::to_string(drafts);
    if (!golden_.head_config.empty()) text += R"(, "model": ")" + folder_ + R"(/head")";
    return text + "}";
  }
  Submit Golden(uint64_t request) const {
    return GreedySubmit(request, golden_.prompt, static_cast<int32_t>(golden_.tokens.size()));
  }
  void ExpectGolden(const HeadAnswer& answer, size_t least) const {
    EXPECT_EQ(answer.tokens, golden_.tokens);
    EXPECT_GE(answer.drafts.size(), least);
    for (const auto& [outputs, drafts] : answer.drafts) {
      EXPECT_EQ(drafts, golden_.drafts[static_cast<size_t>(outputs) - 1]) << outputs;
    }
  }

  HeadGolden golden_;
  std::string folder_;
  HeadWorldOptions options_;
};

TEST_P(HeadGoldenTest, DraftsEqualThePublishedDefinition) {
  const auto world = HeadWorld::Open(options_);
  ASSERT_TRUE(world.ok()) << world.status();
  const auto answers = (*world)->Serve({Golden(1)});
  ExpectGolden(answers.at({1, 0}), 15);
  EXPECT_GT((*world)->totals().draft_tokens, 0u);
}

// Chunks of a few tokens, neighbours, and so few pages that rows lose theirs and begin again.
TEST_P(HeadGoldenTest, NothingAroundARowShowsInItsDrafts) {
  std::mt19937_64 rng(11);
  std::vector<Submit> submits;
  for (uint64_t request = 1; request <= 10; ++request) {
    if (request == 3) {
      submits.push_back(Golden(request));
      continue;
    }
    std::vector<TokenId> prompt(1 + rng() % 90);
    for (TokenId& id : prompt) id = static_cast<TokenId>(rng() % 128);
    submits.push_back(GreedySubmit(request, prompt, static_cast<int32_t>(30 + rng() % 60)));
    submits.back().sampling.temperature = request % 2 == 0 ? 0.0f : 0.8f;
  }
  uint64_t recomputed = 0;
  for (const int32_t step_tokens : {256, 23, 7}) {
    SCOPED_TRACE(step_tokens);
    options_.step_tokens = step_tokens;
    options_.pages = 16;
    options_.max_rows = 6;
    const auto world = HeadWorld::Open(options_);
    ASSERT_TRUE(world.ok()) << world.status();
    const auto answers = (*world)->Serve(submits);
    ExpectGolden(answers.at({3, 0}), 3);
    for (const auto& [key, answer] : answers) recomputed += answer.recomputed;
  }
  EXPECT_GT(recomputed, 0u) << "memory was meant to run out";
}

// Some drafts are right and some are not: what the head has seen of wrong ones does not show.
TEST_P(HeadGoldenTest, VerifiedDraftsLeaveNothingBehind) {
  for (const int32_t block_size : {16, 32}) {
    options_.block_size = block_size;
    const auto world = HeadWorld::Open(options_);
    ASSERT_TRUE(world.ok()) << world.status();
    (*world)->VerifyInstead(
        [this](const DraftRow& row) { return OftenRight(row, golden_.tokens); });
    ExpectGolden((*world)->Serve({Golden(1)}).at({1, 0}), 12);
    const EngineTotals& totals = (*world)->totals();
    EXPECT_GT(totals.accepted_draft_tokens, 10u);
    EXPECT_LT(totals.accepted_draft_tokens, totals.draft_tokens);
  }
}

// A prompt of which the prefix cache holds the beginning, and choices that share a prompt.
TEST_P(HeadGoldenTest, SharedBlocksHoldTheHeadsKeysToo) {
  const auto world = HeadWorld::Open(options_);
  ASSERT_TRUE(world.ok()) << world.status();
  Submit choices = Golden(2);
  choices.choices.resize(3);
  const auto answers = (*world)->ServeInTurn({Golden(1), choices, Golden(3)});
  for (const auto& [key, answer] : answers) ExpectGolden(answer, 5);
  EXPECT_EQ(answers.size(), 5u);
  EXPECT_GT(answers.at({3, 0}).cached, 0u);
}

// Fewer drafts than there are heads are the first of them.
TEST_P(HeadGoldenTest, FewerDraftsAreTheFirst) {
  options_.speculation = Speculation(2);
  const auto world = HeadWorld::Open(options_);
  ASSERT_TRUE(world.ok()) << world.status();
  const HeadAnswer answer = (*world)->Serve({Golden(1)}).at({1, 0});
  EXPECT_EQ(answer.tokens, golden_.tokens);
  EXPECT_GE(answer.drafts.size(), 12u);
  for (const auto& [outputs, drafts] : answer.drafts) {
    std::vector<TokenId> first = golden_.drafts[static_cast<size_t>(outputs) - 1];
    first.resize(2);
    EXPECT_EQ(drafts, first) << outputs;
  }
}

INSTANTIATE_TEST_SUITE_P(All, HeadGoldenTest,
                         testing::Values("medusa", "medusa-vllm", "eagle3", "eagle3-speculators",
                                         "mtp-deepseek", "mtp-glm4-moe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace quire::test
