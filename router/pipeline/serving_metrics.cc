#include "router/pipeline/serving_metrics.h"

#include <algorithm>
#include <iterator>

namespace quire {
namespace {

// Served models of these names share the label.
const std::string kUnknown = "unknown";  // the request ended before its model was known
const std::string kOther = "other";      // beyond kMaxModelLabels

struct Band {
  size_t below;
  const char* name;  // of the label `prompt_tokens`
};
constexpr Band kPromptBands[] = {{256, "0-255"},
                                 {1024, "256-1023"},
                                 {4096, "1024-4095"},
                                 {16384, "4096-16383"},
                                 {SIZE_MAX, "16384+"}};

size_t BandOf(size_t prompt_tokens) {
  const auto* band = std::find_if(std::begin(kPromptBands), std::end(kPromptBands) - 1,
                                  [&](const Band& one) { return prompt_tokens < one.below; });
  return static_cast<size_t>(band - std::begin(kPromptBands));
}

// The ends of an attempt after which another one may continue.
constexpr AttemptEnd kMoves[] = {
    AttemptEnd::kRefused, AttemptEnd::kFailed, AttemptEnd::kDrained, AttemptEnd::kRouterLost,
    AttemptEnd::kLost,    AttemptEnd::kStuck,  AttemptEnd::kBroken,  AttemptEnd::kWithdrawn};

}  // namespace

ServingMetrics::ServingMetrics(Metrics& metrics) : metrics_(metrics) {
  static_assert(std::size(kPromptBands) == kBands);
  for (const AttemptEnd why : kMoves) {
    gaps_[why] =
        &metrics.AddHistogram({"quire_router_failover_gap_seconds",
                               "From a stream's last output to the next one, of another attempt, "
                               "by what ended the attempt before.",
                               {{"cause", std::string(AttemptEndName(why))}}},
                              LatencyBuckets());
  }
}

ServingMetrics::Model& ServingMetrics::Find(const std::string& name) {
  const std::string& label = name.empty() ? kUnknown : name;
  const auto known = models_.find(label);
  if (known != models_.end()) return known->second;
  const bool full = models_.size() >= kMaxModelLabels;
  if (full && label != kUnknown && label != kOther) return Find(kOther);
  Model& model = models_[label];
  model.label = label;
  const char* outcomes[] = {"finished", "cancelled", "failed", "rejected"};
  for (size_t i = 0; i < model.ended.size(); ++i) {
    model.ended[i] = &metrics_.AddCounter({"quire_router_requests_total",
                                           "Requests by the way in which they ended.",
                                           {{"model", label}, {"outcome", outcomes[i]}}});
  }
  model.failed_in_stream =
      &metrics_.AddCounter({"quire_router_stream_failures_total",
                            "Requests that failed after their answer had begun.",
                            {{"model", label}}});
  return model;
}

StreamMetrics& ServingMetrics::Streams(const std::string& name, size_t prompt_tokens) {
  Model& model = Find(name);
  const size_t band = BandOf(prompt_tokens);
  std::unique_ptr<StreamMetrics>& streams = model.streams[band];
  if (streams != nullptr) return *streams;
  const auto add = [&](const char* metric, const char* help) -> Histogram& {
    return metrics_.AddHistogram(
        {metric, help, {{"model", model.label}, {"prompt_tokens", kPromptBands[band].name}}},
        LatencyBuckets());
  };
  streams = std::make_unique<StreamMetrics>(
      StreamMetrics{add("quire_router_time_to_first_token_seconds",
                        "From arrival to the first output, by the prompt's length."),
                    add("quire_router_inter_token_gap_seconds",
                        "Between two outputs of a choice, by the prompt's length.")});
  return *streams;
}

void ServingMetrics::RequestEnded(const std::string& name, RequestEnd end, bool in_stream) {
  Model& model = Find(name);
  model.ended.at(static_cast<size_t>(end))->Add();
  model.failed_in_stream->Add(in_stream && end == RequestEnd::kFailed ? 1 : 0);
}

void ServingMetrics::CarriedOn(AttemptEnd why, double seconds) {
  const auto gap = gaps_.find(why);
  if (gap != gaps_.end()) gap->second->Observe(seconds);
}

}  // namespace quire
