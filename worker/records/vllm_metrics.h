// What requests experience in the worker, under the names, types, labels and buckets of vLLM's
// metrics, so that dashboards, endpoint pickers, autoscalers and load tools made for vLLM work here
// unchanged. (The engine's counters have those names beside their own in
// worker/engine/engine_metrics.h.)
//
// Owner: main; Take is called on the rpc thread, the rest once at the start. Names and buckets:
// vLLM, vllm/v1/metrics/loggers.py.
//  1. Gaps between tokens are measured when the rpc thread gets them, per choice.
//  2. The running choices bound memory: an attempt's last token is forgotten with it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "worker/core/engine_io.h"

namespace quire {

struct VllmMetricsOptions {
  std::string model_name;  // the label
  int32_t max_model_len = 0;
  // These three only describe the cache.
  int32_t block_size = 0;
  int64_t page_count = 0;
  bool prefix_caching = true;
};

class VllmMetrics {
 public:
  // `metrics` and `clock` outlive this object.
  VllmMetrics(const VllmMetricsOptions& options, const Clock& clock, Metrics& metrics);

  void Take(const EngineOutput& output);

 private:
  enum Index : size_t {
    kPromptTokens,
    kGeneratedTokens,
    kComputedTokens,
    kLongestTokens,
    kMaxTokens,
    kChoices,
    kFirstToken,
    kGap,
    kTokenMean,
    kWhole,
    kQueue,
    kInference,
    kPrefill,
    kDecode,
    kHistograms
  };
  using AttemptOfRouter = std::pair<RouterInstance, AttemptKey>;
  using LastTokens = absl::InlinedVector<Micros, 1>;  // by choice; 0: none yet
  struct Hash {
    size_t operator()(const AttemptOfRouter& of) const {
      return absl::HashOf(of.first.value(), of.second.request.value(), of.second.attempt.value());
    }
  };

  void TakeTokens(const RouterOutput& words, Micros now);
  void TakeRecord(const AttemptRecord& record);
  void Observe(Index index, int64_t micros);
  void Count(Index index, uint32_t count) { histograms_[index]->Observe(count); }

  const Clock& clock_;
  std::array<Histogram*, kHistograms> histograms_{};
  std::array<Counter*, 9> success_{};  // by EndReason
  absl::flat_hash_map<AttemptOfRouter, LastTokens, Hash> last_token_;
};

}  // namespace quire
