// vLLM's names: what requests meet becomes the series that tools made for it read.
#include "worker/records/vllm_metrics.h"

#include <gtest/gtest.h>

#include <string>

#include "common/runtime/virtual_runtime.h"

namespace quire {
namespace {

class VllmMetricsTest : public testing::Test {
 protected:
  static Output Token(uint64_t request, uint32_t choice, uint64_t index) {
    Output output;
    output.key = {RequestNumber(request), Attempt(1)};
    output.choice = choice;
    output.first_index = index;
    output.ids = {7};
    return output;
  }
  void Step(std::vector<Output> outputs) {
    EngineOutput output;
    RouterOutput& words = output.routers.emplace_back();
    words.router = RouterInstance(1);
    words.outputs = std::move(outputs);
    metrics.Take(output);
  }
  void Pass(Micros time) { world.RunUntil(world.clock().Now() + time); }
  bool Shows(const std::string& line) {
    const std::string text = "\n" + all.Render();
    return text.find("\n" + line + "\n") != std::string::npos;
  }

  VirtualWorld world{1};
  Metrics all;
  VllmMetrics metrics{{.model_name = "demo",
                       .max_model_len = 300,
                       .block_size = 16,
                       .page_count = 64,
                       .prefix_caching = true},
                      world.clock(),
                      all};
};

TEST_F(VllmMetricsTest, GapsAreThoseOfEachChoice) {
  Step({Token(1, 0, 0), Token(1, 1, 0)});
  Pass(30 * kMicrosPerMilli);
  Step({Token(1, 0, 1)});
  Pass(30 * kMicrosPerMilli);
  Step({Token(1, 0, 2), Token(1, 1, 1)});
  const std::string labels = "{model_name=\"demo\",engine=\"0\"";
  EXPECT_TRUE(Shows("vllm:inter_token_latency_seconds_count" + labels + "} 3"));
  EXPECT_TRUE(Shows("vllm:inter_token_latency_seconds_bucket" + labels + ",le=\"0.05\"} 2"));
  EXPECT_TRUE(Shows("vllm:inter_token_latency_seconds_bucket" + labels + ",le=\"0.075\"} 3"));
}

TEST_F(VllmMetricsTest, ARecordIsCountedAndForgetsItsTokens) {
  Step({Token(1, 0, 0)});
  AttemptRecord record;
  record.router = RouterInstance(1);
  record.key = {RequestNumber(1), Attempt(1)};
  record.reason = EndReason::kLength;
  record.usage.prompt_tokens = 40;
  record.usage.cached_tokens = 32;
  record.usage.generated_tokens = 11;
  record.longest_tokens = 11;
  record.max_tokens = 11;
  record.queue_us = 100'000;
  record.prefill_us = 200'000;
  record.decode_us = 500'000;
  EngineOutput output;
  output.records.push_back(record);
  record.reason = EndReason::kRouterLost;  // another one: nothing was made
  record.usage.generated_tokens = 0;
  record.longest_tokens = 0;
  output.records.push_back(record);
  metrics.Take(output);
  const std::string labels = "{model_name=\"demo\",engine=\"0\"";
  EXPECT_TRUE(Shows("vllm:request_success_total" + labels + ",finished_reason=\"length\"} 1"));
  EXPECT_TRUE(Shows("vllm:request_success_total" + labels + ",finished_reason=\"abort\"} 1"));
  EXPECT_TRUE(Shows("vllm:time_to_first_token_seconds_count" + labels + "} 1"));
  EXPECT_TRUE(Shows("vllm:time_to_first_token_seconds_sum" + labels + "} 0.3"));
  EXPECT_TRUE(Shows("vllm:request_time_per_output_token_seconds_sum" + labels + "} 0.05"));
  EXPECT_TRUE(Shows("vllm:e2e_request_latency_seconds_bucket" + labels + ",le=\"0.8\"} 2"));
  EXPECT_TRUE(Shows("vllm:request_prefill_kv_computed_tokens_sum" + labels + "} 16"));
  EXPECT_TRUE(Shows("vllm:request_params_max_tokens_bucket" + labels + ",le=\"20\"} 2"));
  EXPECT_TRUE(Shows("vllm:request_params_max_tokens_bucket" + labels + ",le=\"10\"} 0"));
  EXPECT_TRUE(Shows("vllm:request_max_num_generation_tokens_count" + labels + "} 1"));
  EXPECT_TRUE(Shows("vllm:request_prompt_tokens_bucket" + labels + ",le=\"200\"} 2"));
  EXPECT_FALSE(Shows("vllm:request_prompt_tokens_bucket" + labels + ",le=\"500\"} 2"));
  Pass(kMicrosPerSecond);
  Step({Token(1, 0, 1)});  // of the same name, and yet another attempt's first
  EXPECT_TRUE(Shows("vllm:inter_token_latency_seconds_count" + labels + "} 0"));
}

TEST_F(VllmMetricsTest, SettingsAreLabels) {
  EXPECT_TRUE(
      Shows("vllm:cache_config_info{model_name=\"demo\",engine=\"0\",block_size=\"16\","
            "num_gpu_blocks=\"64\",enable_prefix_caching=\"True\"} 1"));
  const std::string labels = "{model_name=\"demo\",engine=\"0\"} 0";
  for (const char* what : {"external_prefix", "mm"}) {
    EXPECT_TRUE(Shows("vllm:" + std::string(what) + "_cache_queries_total" + labels));
    EXPECT_TRUE(Shows("vllm:" + std::string(what) + "_cache_hits_total" + labels));
  }
}

}  // namespace
}  // namespace quire
