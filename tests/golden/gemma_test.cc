// Gemma 3 270M as published (Q4_K_M): the argmax of the float32 reference wherever that is clear.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/json/json.h"
#include "common/text/tokenizer.h"
#include "tests/golden/driver.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/rank_driver.h"
#include "worker/model/model.h"

namespace quire::golden {
namespace {

// Between the reference's two best logits: below it, another order of sums may choose the other
// token.
constexpr double kClearGap = 0.05;
constexpr int kLeastClearPositions = 500;
// How far ranks may be from one, of the largest logit of a row: rounding through 18 layers.
constexpr double kRanksTolerance = 1e-5;

struct Prompt {
  std::string text;
  std::string continuation;
  int length = 0;
  std::vector<int32_t> tokens;  // the prompt and the reference's greedy continuation
  std::vector<int32_t> best;    // by position: the reference's argmax
  std::vector<double> gap;      // by position: how far the second best is behind
};

template <typename T>
std::vector<T> Numbers(const json::Object& object, const char* key) {
  std::vector<T> numbers;
  for (const json::Value& value : object.at(key).as_array())
    numbers.push_back(value.to_number<T>());
  return numbers;
}

std::vector<Prompt> ReadPrompts() {
  const std::string path = std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models/gemma3_270m.json";
  absl::StatusOr<json::Value> value = json::Parse(ReadFile(path));
  QUIRE_CHECK(value.ok());
  std::vector<Prompt> prompts;
  for (const json::Value& entry : value->as_object().at("prompts").as_array()) {
    const json::Object& fields = entry.as_object();
    Prompt prompt;
    prompt.text = json::View(fields.at("prompt").as_string());
    prompt.continuation = json::View(fields.at("continuation").as_string());
    prompt.length = static_cast<int>(fields.at("prompt_length").as_int64());
    prompt.tokens = Numbers<int32_t>(fields, "tokens");
    prompt.best = Numbers<int32_t>(fields, "best");
    prompt.gap = Numbers<double>(fields, "gap");
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

class GemmaSlowTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path =
        std::string(QUIRE_SOURCE_DIR) + "/.cache/models/gemma3-270m/model.gguf";
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << "gemma3-270m has not been fetched: ./dev model gemma3-270m";
    }
    auto model = model::LoadModel(path);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    std::string error;
    driver_ = Driver::Make(*model_, {.max_positions = 256}, error);
    ASSERT_NE(driver_, nullptr) << error;
    prompts_ = ReadPrompts();
    ASSERT_EQ(prompts_.size(), 10u);
  }

  // The rows of all positions when these tokens are fed at once.
  std::vector<Row> FeedAll(std::span<const int32_t> tokens) {
    driver_->Reset();
    std::vector<int32_t> wanted(tokens.size());
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<int32_t>(i);
    return driver_->Feed(tokens, wanted);
  }

  std::unique_ptr<model::Model> model_;
  std::unique_ptr<Driver> driver_;
  std::vector<Prompt> prompts_;
};

TEST_F(GemmaSlowTest, TeacherForcedArgmaxEqualsTheReferences) {
  int clear = 0;
  for (const Prompt& prompt : prompts_) {
    SCOPED_TRACE(prompt.text);
    const std::vector<Row> rows = FeedAll(std::span(prompt.tokens).first(prompt.tokens.size() - 1));
    ASSERT_EQ(rows.size(), prompt.best.size());
    for (size_t i = static_cast<size_t>(prompt.length) - 1; i < rows.size(); ++i) {
      if (prompt.gap[i] < kClearGap) continue;
      ++clear;
      EXPECT_EQ(rows[i].token, prompt.best[i]) << "at position " << i << ", gap " << prompt.gap[i];
    }
  }
  EXPECT_GE(clear, kLeastClearPositions);
}

// Cut among ranks that share its one head of keys and values, with the vocabulary of 262,144.
TEST_F(GemmaSlowTest, RanksChooseWhatTheReferenceChooses) {
  const Prompt& prompt = prompts_.front();
  const auto tokens = std::span(prompt.tokens).first(prompt.tokens.size() - 1);
  const std::vector<Row> one = FeedAll(tokens);
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    std::string error;
    const auto driver = RankDriver::Make(*model_, {.ranks = ranks}, error);
    ASSERT_NE(driver, nullptr) << error;
    const std::vector<Row> rows = driver->Step({{0, 0, tokens}});
    for (size_t i = 0; i < rows.size(); ++i) {
      double size = 0.0;
      double difference = 0.0;
      for (size_t id = 0; id < rows[i].logits.size(); ++id) {
        const double wanted = one[i].logits[id];
        size = std::max(size, std::abs(wanted));
        difference = std::max(difference, std::abs(rows[i].logits[id] - wanted));
      }
      EXPECT_LE(difference, kRanksTolerance * size) << "at position " << i;
      if (prompt.gap[i] < kClearGap) continue;
      EXPECT_EQ(rows[i].token, prompt.best[i]) << "at position " << i;
    }
  }
}

TEST_F(GemmaSlowTest, FreeRunningAgreesUpToTheFirstNearTie) {
  for (const Prompt& prompt : prompts_) {
    SCOPED_TRACE(prompt.text);
    driver_->Reset();
    const auto length = static_cast<size_t>(prompt.length);
    std::vector<int32_t> feed(prompt.tokens.begin(),
                              prompt.tokens.begin() + static_cast<int64_t>(length));
    for (size_t i = length; i < prompt.tokens.size() && prompt.gap[i - 1] >= kClearGap; ++i) {
      const auto last = static_cast<int32_t>(feed.size() - 1);
      const std::vector<Row> rows = driver_->Feed(feed, std::span(&last, 1));
      ASSERT_EQ(rows[0].token, prompt.tokens[i]) << "at position " << i;
      feed = {rows[0].token};
    }
  }
}

TEST_F(GemmaSlowTest, TheMitochondriaIsThePowerhouseOfTheCell) {
  auto tokenizer = text::Tokenizer::FromJson(model_->bundle.tokenizer_json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  absl::StatusOr<std::vector<int32_t>> ids =
      (*tokenizer)->Encode("The mitochondria is the", /*add_special_tokens=*/true);
  ASSERT_TRUE(ids.ok()) << ids.status();
  const auto length = static_cast<size_t>(prompts_.front().length);
  EXPECT_EQ(*ids,
            std::vector<int32_t>(prompts_.front().tokens.begin(),
                                 prompts_.front().tokens.begin() + static_cast<int64_t>(length)));
  std::vector<int32_t> answer;
  std::vector<int32_t> feed = *ids;
  for (int i = 0; i < 4; ++i) {
    const auto last = static_cast<int32_t>(feed.size() - 1);
    answer.push_back(driver_->Feed(feed, std::span(&last, 1))[0].token);
    feed = {answer.back()};
  }
  EXPECT_EQ((*tokenizer)->Decode(answer, /*skip_special_tokens=*/true), " powerhouse of the cell");
}

}  // namespace
}  // namespace quire::golden
