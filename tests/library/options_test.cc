// Options of an engine become the settings of quire-worker, and what is wrong is named.
#include "library/options.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

EngineSettings Read(const std::string& options) {
  absl::StatusOr<EngineSettings> settings = ReadEngineSettings(options);
  EXPECT_TRUE(settings.ok()) << settings.status();
  return settings.ok() ? *std::move(settings) : EngineSettings();
}

std::string Refused(const std::string& options) {
  const absl::StatusOr<EngineSettings> settings = ReadEngineSettings(options);
  EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument) << options;
  return StatusMessage(settings.status());
}

TEST(EngineOptions, DefaultsAreForManyPromptsAtOnce) {
  const EngineSettings settings = Read(R"({"model":"/m"})");
  EXPECT_EQ(settings.worker.model, "/m");
  EXPECT_EQ(settings.worker.device, "cpu");
  EXPECT_EQ(settings.worker.max_step_time_ms, 0);
  EXPECT_EQ(settings.log_level, LogLevel::kWarning);
}

TEST(EngineOptions, MembersAreFlagsUnderEitherSpelling) {
  const EngineSettings settings = Read(
      R"({"model":"/m","max_model_len":64,"max-num-seqs":3,"enable_prefix_caching":false,
          "max_step_time_ms":50,"served_model_name":["a","b"],"chat_template":null,
          "kv_cache_memory_bytes":"64MiB","log_level":"error"})");
  EXPECT_EQ(settings.worker.max_model_len, 64);
  EXPECT_EQ(settings.worker.engine.max_num_seqs, 3);
  EXPECT_FALSE(settings.worker.engine.prefix_caching);
  EXPECT_EQ(settings.worker.max_step_time_ms, 50);
  EXPECT_EQ(settings.worker.served_model_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(settings.worker.kv_cache_memory.value, 64 << 20);
  EXPECT_EQ(settings.log_level, LogLevel::kError);
}

TEST(EngineOptions, WhatIsWrongIsNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "options"},
      {"[]", "options: must be a JSON object"},
      {"{}", "model: is missing"},
      {R"({"model":"m","max_model_length":5})", "max-model-len"},
      {R"({"model":"m","max_model_len":"many"})", "max-model-len"},
      {R"({"model":"m","max_model_len":{}})", "max-model-len: must be a number"},
      {R"({"model":"m","served_model_name":[[]]})", "served-model-name: must be a number"},
      {R"({"model":"m","http_port":1})", "http-port: has no meaning here"},
      {R"({"model":"m","rank_backend":"process"})", "rank-backend: has no meaning here"},
      {R"({"model":"m","device":"cuda"})", "device: is \"cuda\""},
      {R"({"model":"m","help":true})", "help"},
      {R"({"model":"m","config":"/etc/passwd"})", "config: has no meaning here"},
  };
  for (const auto& [options, words] : cases) {
    EXPECT_NE(Refused(options).find(words), std::string::npos)
        << options << ": " << Refused(options);
  }
}

// A value cannot become another flag, nor the flags' end.
TEST(EngineOptions, ValuesStayValues) {
  EXPECT_EQ(Read(R"({"model":"--listen=0.0.0.0:1"})").worker.model, "--listen=0.0.0.0:1");
  EXPECT_NE(Refused(R"({"model":"m","":"x"})"), "");
  EXPECT_NE(Refused(R"({"model":"m","listen=0.0.0.0:1":"x"})"), "");
}

}  // namespace
}  // namespace quire
