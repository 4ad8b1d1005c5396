// The tokens that the emulated worker serves (tests/process/emulated_test.py) are those of the
// backend without engine, runner and router.
#include <gtest/gtest.h>

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

const std::string kSource = QUIRE_SOURCE_DIR;

std::vector<int32_t> Ids(const json::Value& value) {
  std::vector<int32_t> ids;
  for (const json::Value& id : value.as_array()) ids.push_back(static_cast<int32_t>(id.as_int64()));
  return ids;
}

TEST(EmulatedServedTest, TokensAreTheBackendsOwn) {
  const absl::StatusOr<json::Value> file =
      json::Parse(ReadFile(kSource + "/tests/kernels/cuda/backend/served_tokens.json"));
  ASSERT_TRUE(file.ok());
  model::LoadOptions load;
  load.with_text = false;
  auto model = model::LoadModel(kSource + "/models/demo", load);
  ASSERT_TRUE(model.ok()) << model.status();
  DriverOptions options;
  options.max_positions = 64;
  options.block_size = 64;
  options.make_backend = MakeEmulatedBackend;
  std::string error;
  const std::unique_ptr<Driver> driver = Driver::Make(**model, options, error);
  ASSERT_NE(driver, nullptr) << error;
  for (const json::Value& entry : file->as_object().at("prompts").as_array()) {
    std::vector<int32_t> feed = Ids(entry.as_object().at("prompt"));
    const std::vector<int32_t> expected = Ids(entry.as_object().at("tokens"));
    std::vector<int32_t> tokens;
    driver->Reset();
    while (tokens.size() < expected.size()) {
      const auto last = static_cast<int32_t>(feed.size() - 1);
      feed = {driver->Feed(feed, std::span(&last, 1))[0].token};
      tokens.push_back(feed[0]);
    }
    EXPECT_EQ(tokens, expected);
  }
}

}  // namespace
}  // namespace quire::golden
