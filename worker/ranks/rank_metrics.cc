#include "worker/ranks/rank_metrics.h"

#include <string>

namespace quire {

const char* RankFailureName(RankFailure failure) {
  constexpr const char* kNames[kRankFailures] = {"died", "deadline", "digest",
                                                 "rank", "damaged",  "start"};
  return kNames[static_cast<size_t>(failure)];
}

RankMetrics::RankMetrics(Metrics& metrics)
    : count(
          metrics.AddGauge({"quire_worker_ranks", "Tensor-parallel ranks that share the model."})),
      ready(metrics.AddGauge(
          {"quire_worker_rank_ready", "Of these, ranks that compute; 0 while they restart."})),
      device_memory(metrics.AddGauge(
          {"quire_worker_device_memory_bytes",
           "Memory of the ranks' devices, all together; 0 where they use the host's."})),
      device_memory_free(metrics.AddGauge(
          {"quire_worker_device_memory_free_bytes",
           "The part of it that is free; constant once the worker is ready and alone on its "
           "devices."})),
      restarts(metrics.AddCounter(
          {"quire_worker_rank_restarts_total", "Times that the ranks were started again."})) {
  for (size_t i = 0; i < kRankFailures; ++i) {
    failures[i] = &metrics.AddCounter({"quire_worker_rank_failures_total",
                                       "Times that the group of ranks went down, by reason.",
                                       {{"why", RankFailureName(static_cast<RankFailure>(i))}}});
  }
}

}  // namespace quire
