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

// The first tokens of prompts, as the reference continues them in float32.
void ExpectFirstTokens(size_t prompts, size_t count) {
  const std::string path = std::string(QUIRE_SOURCE_DIR) + "/.cache/models/gemma3-270m/model.gguf";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "gemma3-270m has not been fetched: ./dev model gemma3-270m";
  }
  model::LoadOptions load;
  load.with_text = false;
  auto model = model::LoadModel(path, load);
  ASSERT_TRUE(model.ok()) << model.status();
  DriverOptions options;
  options.max_positions = 64;
  options.make_backend = MakeEmulatedBackend;
  std::string error;
  const std::unique_ptr<Driver> driver = Driver::Make(**model, options, error);
  ASSERT_NE(driver, nullptr) << error;
  const std::vector<Prompt> all = ReadPrompts();
  for (size_t p = 0; p < prompts; ++p) {
    SCOPED_TRACE(p);
    driver->Reset();
    std::vector<int32_t> feed(all[p].tokens.begin(),
                              all[p].tokens.begin() + static_cast<int64_t>(all[p].length));
    for (size_t i = 0; i < count; ++i) {
      const auto last = static_cast<int32_t>(feed.size() - 1);
      feed = {driver->Feed(feed, std::span(&last, 1))[0].token};
      ASSERT_EQ(feed[0], all[p].tokens[all[p].length + i]) << "token " << i;
    }
  }
}

TEST(EmulatedGemmaTest, FirstGoldenToken) { ExpectFirstTokens(1, 1); }

TEST(EmulatedGemmaSlowTest, FirstFourGoldenTokensOfTwoPrompts) { ExpectFirstTokens(2, 4); }

}  // namespace
}  // namespace quire::golden
