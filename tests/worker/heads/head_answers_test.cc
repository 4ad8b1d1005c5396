// Answers are the same with a head and without, whatever the head proposes.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "tests/worker/heads/head_world.h"

namespace quire::test {
namespace {

constexpr int32_t kVocabulary = 128;

class HeadAnswersTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    golden_ = ReadGolden(GetParam());
    folder_ = testing::TempDir() + "/head_answers_" + GetParam();
    std::filesystem::remove_all(folder_);
    WriteFolder(folder_ + "/target", golden_.target_config, golden_.target);
    if (!golden_.head_config.empty()) {
      WriteFolder(folder_ + "/head", golden_.head_config, golden_.head);
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  HeadWorldOptions Options(bool with_head) const {
    HeadWorldOptions options;
    options.target = folder_ + "/target";
    if (!with_head) return options;
    options.speculation =
        R"({"method": ")" + golden_.method + R"(", "num_speculative_tokens": 4)" +
        (golden_.head_config.empty() ? "" : R"(, "model": ")" + folder_ + R"(/head")") + "}";
    return options;
  }

  // Prompts that share beginnings, some of them at the end of a block; several choices, any
  // temperature, penalties.
  std::vector<Submit> Requests(uint64_t seed) const {
    std::mt19937_64 rng(seed);
    std::vector<TokenId> common(64);
    for (TokenId& id : common) id = static_cast<TokenId>(rng() % kVocabulary);
    std::vector<Submit> submits;
    for (uint64_t request = 1; request <= 8; ++request) {
      const size_t shared = 16 * (rng() % 5);
      std::vector<TokenId> prompt(common.begin(), common.begin() + static_cast<ptrdiff_t>(shared));
      for (size_t i = 0; i < 1 + rng() % 30; ++i) {
        prompt.push_back(static_cast<TokenId>(rng() % kVocabulary));
      }
      Submit submit = GreedySubmit(request, prompt, static_cast<int32_t>(5 + rng() % 50));
      submit.choices.resize(1 + rng() % 3);
      submit.sampling.temperature = request % 3 == 0 ? 0.0f : 0.7f;
      submit.sampling.top_p = request % 2 == 0 ? 0.9f : 1.0f;
      submit.sampling.repetition_penalty = request % 4 == 0 ? 1.2f : 1.0f;
      submits.push_back(std::move(submit));
    }
    return submits;
  }

  HeadGolden golden_;
  std::string folder_;
};

TEST_P(HeadAnswersTest, AreThoseWithoutAHead) {
  uint64_t accepted = 0, drafted = 0, cached = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    const std::vector<Submit> submits = Requests(seed);
    const auto plain = HeadWorld::Open(Options(false));
    ASSERT_TRUE(plain.ok()) << plain.status();
    const HeadAnswers want = (*plain)->Serve(submits);
    for (const bool right_ones : {false, true}) {
      for (const int32_t step_tokens : {256, 19}) {
        SCOPED_TRACE(testing::Message() << seed << " " << right_ones << " " << step_tokens);
        HeadWorldOptions options = Options(true);
        options.step_tokens = step_tokens;
        options.pages = right_ones ? 24 : 64;
        const auto world = HeadWorld::Open(options);
        ASSERT_TRUE(world.ok()) << world.status();
        if (right_ones) {
          (*world)->VerifyInstead([&want](const DraftRow& row) {
            return OftenRight(row, want.at({row.sampling->seed, row.choice}).tokens);
          });
        }
        const HeadAnswers got = right_ones && step_tokens == 256 ? (*world)->ServeInTurn(submits)
                                                                 : (*world)->Serve(submits);
        ASSERT_EQ(got.size(), want.size());
        for (const auto& [key, answer] : want) {
          EXPECT_EQ(got.at(key).tokens, answer.tokens) << key.first << " " << key.second;
          cached += got.at(key).cached;
        }
        accepted += (*world)->totals().accepted_draft_tokens;
        drafted += (*world)->totals().draft_tokens;
      }
    }
  }
  EXPECT_GT(accepted, 100u);
  EXPECT_LT(accepted, drafted);
  EXPECT_GT(cached, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, HeadAnswersTest,
                         testing::Values("medusa", "eagle3", "mtp-deepseek", "mtp-glm4-moe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace quire::test
