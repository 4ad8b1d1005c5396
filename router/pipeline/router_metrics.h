// The router's counters, under the names that Prometheus sees.
//
// Owner: the pipeline; written on its executor only.
#pragma once

#include <array>
#include <map>
#include <string_view>

#include "common/metrics/counted_series.h"
#include "router/dispatch/dispatcher.h"
#include "router/pipeline/admission_metrics.h"
#include "router/pipeline/fleet_metrics.h"
#include "router/pipeline/serving_metrics.h"
#include "router/records/request_record.h"

namespace quire {

class RouterMetrics {
 public:
  // `policy` is the name of the routing policy; `from_zero`: having no worker is not a fault.
  RouterMetrics(Metrics& metrics, const std::string& policy, bool from_zero);

  // Every request ends once, here; `accepted` ones have a record of what they used.
  void RequestEnded(const RequestRecord& record, bool accepted);
  // From the start of its wait to its first Submit.
  void Waited(double seconds) { admission_.Waited(seconds); }
  void ResponseCut() { responses_cut_.Add(); }
  // A choice ended; `limit` is the one that its calls went past, as dialect::Limits names it.
  void AnswerRead(std::string_view limit);
  void HeldAhead() { held_ahead_.Add(); }
  void LiveRequests(size_t count) { live_requests_.Set(static_cast<double>(count)); }
  // Counters since the last call, workers, queues.
  void Update(const Dispatcher& dispatcher, const Admission& admission);
  ServingMetrics& serving() { return serving_; }

 private:
  void UpdateDispatch(const Dispatcher& dispatcher);
  void AddStates(Metrics& metrics);  // of workers, and of the index of their caches
  void AddDecisions(Metrics& metrics, const std::string& policy);
  void UpdateIndex(const CacheIndex& index, size_t workers);

  Histogram& request_seconds_;
  Counter& prompt_tokens_;
  Counter& cached_tokens_;
  Counter& generation_tokens_;
  Counter& discarded_tokens_;
  Counter& inexact_;
  Counter& responses_cut_;
  std::map<std::string_view, Counter*> answer_limits_;
  Counter& held_ahead_;
  Gauge& live_requests_;
  std::array<Gauge*, 8> workers_;  // by WorkerPhase
  Gauge& waiting_requests_;
  Gauge& suspect_prompts_;
  std::array<Counter*, 3> predictions_;  // exact, raced, wrong
  std::array<Gauge*, 6> cache_workers_;  // by CacheState
  Gauge& index_bytes_;
  struct Decisions {
    Counter* counter = nullptr;
    uint64_t last = 0;
  };
  std::map<std::string_view, Decisions> decisions_;  // by reason: all reasons
  CacheIndexCounters last_index_;
  CountedSeries<DispatchCounters> dispatch_;
  CountedSeries<CacheIndexCounters> cache_index_;
  ServingMetrics serving_;
  FleetMetrics fleet_;
  AdmissionMetrics admission_;
};

}  // namespace quire
