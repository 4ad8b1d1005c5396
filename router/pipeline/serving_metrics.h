// What clients experience, by model and by length of prompt: outcomes, time to the first token,
// gaps between tokens, and the gap that a failover left in a stream.
//
// Owner: the pipeline; written on its executor only.
//  1. Labels are bounded: models by kMaxModelLabels (the rest is "other"; "unknown" where a request
//     ended before its model was known), prompts by their length bands.
//  2. References stay valid as long as the Metrics.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/metrics/metrics.h"
#include "router/dispatch/attempt_report.h"
#include "router/records/request_record.h"

namespace quire {

inline constexpr size_t kMaxModelLabels = 64;

// The series of one model and one band of prompt lengths.
struct StreamMetrics {
  Histogram& first_token_seconds;
  Histogram& gap_seconds;
};

class ServingMetrics {
 public:
  explicit ServingMetrics(Metrics& metrics);

  StreamMetrics& Streams(const std::string& model, size_t prompt_tokens);
  // `model` is empty where a request ended before its model was known. `in_stream`: its answer had
  // begun.
  void RequestEnded(const std::string& model, RequestEnd end, bool in_stream);
  // A stream continued after an attempt that ended in this way; `seconds` since its last output.
  void CarriedOn(AttemptEnd why, double seconds);

 private:
  static constexpr size_t kBands = 5;
  struct Model {
    std::string label;
    std::array<std::unique_ptr<StreamMetrics>, kBands> streams;
    std::array<Counter*, 4> ended{};  // by RequestEnd
    Counter* failed_in_stream = nullptr;
  };
  Model& Find(const std::string& name);

  Metrics& metrics_;
  std::map<std::string, Model> models_;
  std::map<AttemptEnd, Histogram*> gaps_;
};

}  // namespace quire
