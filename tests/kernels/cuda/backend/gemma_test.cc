// Gemma 3 270M as it is published (Q4_K_M), through every kernel of the emulated device.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "tests/golden/driver.h"
#include "tests/golden/golden_file.h"
#include "tests/kernels/cuda/backend/emulated.h"
#include "worker/model/model.h"

namespace quire::golden {
namespace {

struct Prompt {
  std::vector<int32_t> tokens;  // the prompt and the reference's continuation
  size_t length = 0;
};

std::vector<Prompt> ReadPrompts() {
  const absl::StatusOr<json::Value> value = json::Parse(
      ReadFile(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models/gemma3_270m.json"));
  EXPECT_TRUE(value.ok());
  std::vector<Prompt> prompts;
  for (const json::Value& entry : value->as_object().at("prompts").as_array()) {
    const json::Object& fields = entry.as_object();
    Prompt& prompt = prompts.emplace_back();
    prompt.length = static_cast<size_t>(fields.at("prompt_length").as_int64());
    for (const json::Value& id : fields.at("tokens").as_array()) {
      prompt.tokens.push_back(static_cast<int32_t>(id.as_int64()));
    }
  }
  return prompts;
}

std::string ModelPath() {
  return std::string(QUIRE_SOURCE_DIR) + "/.cache/models/gemma3-270m/model.gguf";
}

// The model on one device for all tests of this file, and what it has said to the prompt it was
// asked last: a token that one test has waited for is not made anew for the next.
class Gemma {
 public:
  // Null where it cannot be loaded.
  static Gemma* Loaded() {
    static Gemma gemma;
    return gemma.driver_ != nullptr ? &gemma : nullptr;
  }

  // The first `count` tokens of the answer to a prompt.
  std::vector<int32_t> Answer(size_t prompt, size_t count) {
    if (prompt != prompt_ || said_.empty()) {
      prompt_ = prompt;
      driver_->Reset();
      const std::vector<int32_t>& tokens = prompts_[prompt].tokens;
      said_ = {Next(std::span(tokens).first(prompts_[prompt].length))};
    }
    while (said_.size() < count) said_.push_back(Next(std::span(&said_.back(), 1)));
    return {said_.begin(), said_.begin() + static_cast<ptrdiff_t>(count)};
  }
  // The same as the reference says it in float32.
  std::vector<int32_t> Expected(size_t prompt, size_t count) const {
    const Prompt& of = prompts_[prompt];
    const auto begin = of.tokens.begin() + static_cast<ptrdiff_t>(of.length);
    return {begin, begin + static_cast<ptrdiff_t>(count)};
  }

 private:
  Gemma() : prompts_(ReadPrompts()) {
    model::LoadOptions load;
    load.with_text = false;
    auto model = model::LoadModel(ModelPath(), load);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return;
    model_ = *std::move(model);
    DriverOptions options;
    options.max_positions = 64;
    options.make_backend = MakeEmulatedBackend;
    std::string error;
    driver_ = Driver::Make(*model_, options, error);
    EXPECT_NE(driver_, nullptr) << error;
  }

  int32_t Next(std::span<const int32_t> tokens) {
    const auto last = static_cast<int32_t>(tokens.size() - 1);
    return driver_->Feed(tokens, std::span(&last, 1))[0].token;
  }

  const std::vector<Prompt> prompts_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<Driver> driver_;
  size_t prompt_ = 0;
  std::vector<int32_t> said_;
};

void ExpectFirstTokens(size_t prompts, size_t count) {
  if (!std::filesystem::exists(ModelPath())) {
    GTEST_SKIP() << "gemma3-270m has not been fetched: ./dev model gemma3-270m";
  }
  Gemma* gemma = Gemma::Loaded();
  ASSERT_NE(gemma, nullptr);
  for (size_t prompt = 0; prompt < prompts; ++prompt) {
    SCOPED_TRACE(prompt);
    ASSERT_EQ(gemma->Answer(prompt, count), gemma->Expected(prompt, count));
  }
}

TEST(EmulatedGemmaTest, FirstGoldenToken) { ExpectFirstTokens(1, 1); }

TEST(EmulatedGemmaSlowTest, FirstFourGoldenTokensOfTwoPrompts) { ExpectFirstTokens(2, 4); }

}  // namespace
}  // namespace quire::golden
