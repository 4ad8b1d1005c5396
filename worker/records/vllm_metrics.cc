#include "worker/records/vllm_metrics.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace quire {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

const std::vector<double> kFirstTokenBuckets = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                                0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                                20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
const std::vector<double> kGapBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                         0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const std::vector<double> kRequestBuckets = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                             5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                             60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};

// 1, 2, 5, 10, 20, 50, … up to the longest context.
std::vector<double> TokenBuckets(int32_t most) {
  std::vector<double> bounds;
  for (int64_t decade = 1; decade <= most; decade *= 10) {
    for (const int64_t step : {1, 2, 5}) {
      if (decade * step <= most) bounds.push_back(static_cast<double>(decade * step));
    }
  }
  return bounds;
}

double Seconds(int64_t micros) { return static_cast<double>(micros) / kMicrosPerSecond; }

// vLLM's names for how a request ended.
const char* FinishedReason(EndReason reason) {
  switch (reason) {
    case EndReason::kStop:
      return "stop";
    case EndReason::kLength:
      return "length";
    case EndReason::kFailed:
      return "error";
    default:
      return "abort";
  }
}

Labels LabelsOf(const VllmMetricsOptions& options) {
  return {{"model_name", options.model_name}, {"engine", "0"}};
}

Labels With(Labels labels, const char* name, std::string value) {
  labels.emplace_back(name, std::move(value));
  return labels;
}

void AddConstants(const VllmMetricsOptions& options, Metrics& metrics) {
  const Labels own = LabelsOf(options);
  Labels cache = With(own, "block_size", std::to_string(options.block_size));
  cache.emplace_back("num_gpu_blocks", std::to_string(options.page_count));
  cache.emplace_back("enable_prefix_caching", options.prefix_caching ? "True" : "False");
  metrics.AddGauge({"vllm:cache_config_info", "Settings of the cache, as labels.", cache}).Set(1);
  for (const char* state : {"awake", "weights_offloaded", "discard_all"}) {
    metrics
        .AddGauge({"vllm:engine_sleep_state", "This engine never sleeps.",
                   With(own, "sleep_state", state)})
        .Set(std::string_view(state) == "awake" ? 1 : 0);
  }
  // Dashboards divide by these: there is no external cache and no cache of images.
  for (const char* name :
       {"vllm:external_prefix_cache_queries_total", "vllm:external_prefix_cache_hits_total",
        "vllm:mm_cache_queries_total", "vllm:mm_cache_hits_total"}) {
    metrics.AddCounter({name, "Always 0: this engine has no such cache.", own});
  }
}

enum class Buckets : uint8_t { kTokens, kChoices, kFirstToken, kGap, kRequest };

std::vector<double> BoundsOf(Buckets buckets, int32_t max_model_len) {
  switch (buckets) {
    case Buckets::kTokens:
      return TokenBuckets(max_model_len);
    case Buckets::kChoices:
      return {1, 2, 5, 10, 20};
    case Buckets::kFirstToken:
      return kFirstTokenBuckets;
    case Buckets::kGap:
      return kGapBuckets;
    case Buckets::kRequest:
      return kRequestBuckets;
  }
  return {};
}

struct Spec {
  const char* name;
  const char* help;
  Buckets buckets;
};
// In the order of VllmMetrics::Index.
constexpr Spec kSpecs[] = {
    {"request_prompt_tokens", "Prompt tokens of a request.", Buckets::kTokens},
    {"request_generation_tokens", "Tokens generated for a request.", Buckets::kTokens},
    {"request_prefill_kv_computed_tokens", "Prompt tokens that were computed, not cached.",
     Buckets::kTokens},
    {"request_max_num_generation_tokens", "Tokens of a request's longest choice.",
     Buckets::kTokens},
    {"request_params_max_tokens", "Tokens that a request asked for at most.", Buckets::kTokens},
    {"request_params_n", "Choices of a request.", Buckets::kChoices},
    {"time_to_first_token_seconds", "From arrival here to the first token.", Buckets::kFirstToken},
    {"inter_token_latency_seconds", "Between two tokens of a choice.", Buckets::kGap},
    {"request_time_per_output_token_seconds", "Mean gap between the tokens of a request.",
     Buckets::kGap},
    {"e2e_request_latency_seconds", "From arrival here to the end.", Buckets::kRequest},
    {"request_queue_time_seconds", "From arrival to its first step.", Buckets::kRequest},
    {"request_inference_time_seconds", "From its first step to the end.", Buckets::kRequest},
    {"request_prefill_time_seconds", "From its first step to the first token.", Buckets::kRequest},
    {"request_decode_time_seconds", "From the first token to the end.", Buckets::kRequest}};

}  // namespace

VllmMetrics::VllmMetrics(const VllmMetricsOptions& options, const Clock& clock, Metrics& metrics)
    : clock_(clock) {
  const Labels own = LabelsOf(options);
  static_assert(std::size(kSpecs) == kHistograms);
  for (size_t i = 0; i < kHistograms; ++i) {
    std::vector<double> bounds = BoundsOf(kSpecs[i].buckets, options.max_model_len);
    histograms_[i] = &metrics.AddHistogram(
        {std::string("vllm:") + kSpecs[i].name, kSpecs[i].help, own}, std::move(bounds));
  }
  std::map<std::string, Counter*> by_name;
  for (size_t i = 1; i < success_.size(); ++i) {
    const char* name = FinishedReason(static_cast<EndReason>(i));
    Counter*& counter = by_name[name];
    if (counter == nullptr) {
      counter = &metrics.AddCounter({"vllm:request_success_total",
                                     "Requests by the way in which they ended.",
                                     With(own, "finished_reason", name)});
    }
    success_[i] = counter;
  }
  AddConstants(options, metrics);
}

void VllmMetrics::Observe(Index index, int64_t micros) {
  histograms_[index]->Observe(Seconds(micros));
}

void VllmMetrics::Take(const EngineOutput& output) {
  const Micros now = clock_.Now();
  for (const RouterOutput& words : output.routers) TakeTokens(words, now);
  for (const AttemptRecord& record : output.records) TakeRecord(record);
}

void VllmMetrics::TakeTokens(const RouterOutput& words, Micros now) {
  for (const Output& output : words.outputs) {
    LastTokens& last = last_token_[{words.router, output.key}];
    if (last.size() <= output.choice) last.resize(output.choice + 1, 0);
    const Micros before = std::exchange(last[output.choice], now);
    if (before != 0) Observe(kGap, now - before);
  }
}

void VllmMetrics::TakeRecord(const AttemptRecord& record) {
  last_token_.erase({record.router, record.key});
  Counter* success = success_.at(static_cast<size_t>(record.reason));
  if (success != nullptr) success->Add();
  const AttemptUsage& usage = record.usage;
  Count(kPromptTokens, usage.prompt_tokens);
  Count(kGeneratedTokens, usage.generated_tokens);
  Count(kComputedTokens, usage.prompt_tokens - std::min(usage.prompt_tokens, usage.cached_tokens));
  Count(kMaxTokens, record.max_tokens);
  if (record.longest_tokens > 0) Count(kLongestTokens, record.longest_tokens);
  Count(kChoices, record.choices);
  Observe(kQueue, record.queue_us);
  Observe(kInference, record.prefill_us + record.decode_us);
  Observe(kPrefill, record.prefill_us);
  Observe(kDecode, record.decode_us);
  Observe(kWhole, record.queue_us + record.prefill_us + record.decode_us);
  if (usage.generated_tokens > 0) Observe(kFirstToken, record.queue_us + record.prefill_us);
  if (usage.generated_tokens <= record.choices) return;
  const double gaps = static_cast<double>(usage.generated_tokens) / record.choices - 1;
  histograms_[kTokenMean]->Observe(Seconds(record.decode_us) / gaps);
}

}  // namespace quire
