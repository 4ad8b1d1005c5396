// The demo model of this repository: its fixed stories and its perplexity, as its own evaluation
// wrote them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/json/json.h"
#include "common/text/tokenizer.h"
#include "tests/golden/driver.h"
#include "tests/golden/golden_file.h"
#include "worker/model/model.h"

namespace quire::golden {
namespace {

// Sums over thousands of tokens in another order: far more than their rounding, far less than a
// wrong weight.
constexpr double kNllTolerance = 1e-4;

json::Object ReadJson(const std::string& name) {
  absl::StatusOr<json::Value> value =
      json::Parse(ReadFile(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/demo/" + name));
  QUIRE_CHECK(value.ok());
  return std::move(value->as_object());
}

std::vector<int32_t> Ids(const json::Value& value) {
  std::vector<int32_t> ids;
  for (const json::Value& id : value.as_array()) ids.push_back(id.to_number<int32_t>());
  return ids;
}

// −log p of one token under a row of logits.
double NegativeLogLikelihood(const std::vector<float>& logits, int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (float logit : logits) sum += std::exp(logit - largest);
  return std::log(sum) + largest - logits[static_cast<size_t>(token)];
}

class DemoTest : public testing::Test {
 protected:
  void SetUp() override {
    auto model = model::LoadModel(std::string(QUIRE_SOURCE_DIR) + "/models/demo");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    std::string error;
    driver_ = Driver::Make(*model_, {.max_positions = 2048}, error);
    ASSERT_NE(driver_, nullptr) << error;
  }

  std::unique_ptr<model::Model> model_;
  std::unique_ptr<Driver> driver_;
};

TEST_F(DemoTest, TellsItsStoriesUpToTheFirstNearTie) {
  const json::Object golden = ReadJson("stories.json");
  const json::Array& stories = golden.at("stories").as_array();
  ASSERT_GE(stories.size(), 20u);
  for (const json::Value& entry : stories) {
    const json::Object& story = entry.as_object();
    SCOPED_TRACE(std::string(json::View(story.at("prompt").as_string())));
    const std::vector<int32_t> expected = Ids(story.at("output_ids"));
    const int64_t near_tie = story.at("first_near_tie").as_int64();
    const size_t count = near_tie < 0 ? expected.size() : static_cast<size_t>(near_tie);
    driver_->Reset();
    std::vector<int32_t> feed = Ids(story.at("prompt_ids"));
    for (size_t i = 0; i < count; ++i) {
      const auto last = static_cast<int32_t>(feed.size() - 1);
      const int32_t token = driver_->Feed(feed, std::span(&last, 1))[0].token;
      ASSERT_EQ(token, expected[i]) << "at output " << i;
      feed = {token};
    }
  }
}

TEST_F(DemoTest, BringsItsText) {
  EXPECT_EQ(model_->bundle_digest.size(), 64u);
  EXPECT_EQ(model_->bundle_digest, text::TextBundleDigest(model_->bundle_bytes));
  EXPECT_NE(model_->bundle.ChatTemplateSource(/*with_tools=*/false), nullptr);
  EXPECT_FALSE(model_->bundle.eos_token_ids.empty());
  absl::StatusOr<std::unique_ptr<text::Tokenizer>> tokenizer =
      text::Tokenizer::FromJson(model_->bundle.tokenizer_json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const json::Object golden = ReadJson("stories.json");
  for (const json::Value& entry : golden.at("stories").as_array()) {
    const json::Object& story = entry.as_object();
    absl::StatusOr<std::vector<int32_t>> ids =
        (*tokenizer)->Encode(json::View(story.at("prompt").as_string()), true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, Ids(story.at("prompt_ids")));
  }
}

TEST_F(DemoTest, HasThePerplexityOfItsEvaluation) {
  const json::Object golden = ReadJson("perplexity.json");
  double total = 0.0;
  size_t tokens = 0;
  for (const json::Value& entry : golden.at("sequences").as_array()) {
    const std::vector<int32_t> ids = Ids(entry.as_object().at("ids"));
    driver_->Reset();
    std::vector<int32_t> wanted(ids.size() - 1);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<int32_t>(i);
    const std::vector<Row> rows = driver_->Feed(std::span(ids).first(wanted.size()), wanted);
    double sum = 0.0;
    for (size_t i = 0; i < rows.size(); ++i) {
      sum += NegativeLogLikelihood(rows[i].logits, ids[i + 1]);
    }
    EXPECT_NEAR(sum / static_cast<double>(rows.size()),
                entry.as_object().at("nll").to_number<double>(), kNllTolerance);
    total += sum;
    tokens += rows.size();
  }
  const double nll = total / static_cast<double>(tokens);
  EXPECT_NEAR(nll, golden.at("nll").to_number<double>(), kNllTolerance);
  EXPECT_NEAR(std::exp(nll), golden.at("perplexity").to_number<double>(), 1e-3);
}

}  // namespace
}  // namespace quire::golden
