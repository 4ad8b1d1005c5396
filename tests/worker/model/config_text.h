// Configurations as text, and what is read of them, for the tests of ModelConfig.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "common/json/json.h"
#include "common/status.h"
#include "worker/model/family.h"

namespace quire::model {

inline absl::StatusOr<load::ModelConfig> Parse(const std::string& text) {
  absl::StatusOr<json::Value> value = json::Parse(text, {.pythons_infinity = true});
  EXPECT_TRUE(value.ok()) << value.status();
  return ModelConfigFromJson(value->as_object(), "m/config.json");
}

// A configuration of the architecture with `more` members (each beginning with a comma).
inline std::string Config(const std::string& architecture, const std::string& more) {
  return R"({"architectures":[")" + architecture +
         R"("],"vocab_size":100,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,)"
         R"("num_attention_heads":4)" +
         more + "}";
}

inline load::ModelConfig Good(const std::string& architecture, const std::string& more) {
  absl::StatusOr<load::ModelConfig> config = Parse(Config(architecture, more));
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : load::ModelConfig();
}

inline void ExpectRefused(const std::string& text, std::string_view saying) {
  const absl::StatusOr<load::ModelConfig> config = Parse(text);
  ASSERT_FALSE(config.ok()) << text;
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(StatusMessage(config.status()).find(saying), std::string::npos) << config.status();
  EXPECT_NE(StatusMessage(config.status()).find("m/config.json"), std::string::npos);
  EXPECT_EQ(StatusMessage(config.status()).find('\n'), std::string::npos);
}

}  // namespace quire::model
