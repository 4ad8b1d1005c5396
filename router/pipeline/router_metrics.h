// What the router counts, by the names under which Prometheus sees it.
//
// Owner: the pipeline; written on its executor only.
#pragma once

#include <array>
#include <map>
#include <string_view>

#include "common/metrics/metrics.h"
#include "router/dispatch/dispatcher.h"
#include "router/records/request_record.h"

namespace quire {

class RouterMetrics {
 public:
  explicit RouterMetrics(Metrics& metrics);

  // Every request ends once, here; `accepted` ones have a record that says what they cost.
  void RequestEnded(const RequestRecord& record, bool accepted);
  void FirstToken(double seconds) { first_token_seconds_.Observe(seconds); }
  void LiveRequests(size_t count) { live_requests_.Set(static_cast<double>(count)); }
  // Counters since the last call, and workers by phase.
  void Update(const Dispatcher& dispatcher);

 private:
  void AddDecisions(Metrics& metrics);
  void UpdateIndex(const CacheIndex& index, size_t workers);

  std::array<Counter*, 4> requests_;  // by RequestEnd
  Histogram& request_seconds_;
  Histogram& first_token_seconds_;
  Counter& prompt_tokens_;
  Counter& cached_tokens_;
  Counter& generation_tokens_;
  Counter& discarded_tokens_;
  Counter& inexact_;
  Gauge& live_requests_;
  std::array<Gauge*, 8> workers_;      // by WorkerPhase
  std::array<Counter*, 17> dispatch_;  // in the order of router_metrics.cc
  Gauge& waiting_requests_;
  DispatchCounters last_;
  std::array<Counter*, 3> predictions_;  // exact, raced, wrong
  std::array<Counter*, 3> cache_index_;  // stale, snapshots, over the limit
  std::array<Gauge*, 6> cache_workers_;  // by CacheState
  Gauge& index_bytes_;
  struct Decisions {
    Counter* counter = nullptr;
    uint64_t last = 0;
  };
  std::map<std::string_view, Decisions> decisions_;  // by reason: all that there are
  CacheIndexCounters last_index_;
};

}  // namespace quire
