#include "router/pipeline/router_metrics.h"

#include <string>

namespace quire {

RouterMetrics::RouterMetrics(Metrics& metrics, const std::string& policy, bool from_zero)
    : request_seconds_(metrics.AddHistogram(
          {"quire_router_request_seconds", "From arrival to the last byte."}, LatencyBuckets())),
      prompt_tokens_(metrics.AddCounter({"quire_router_prompt_tokens_total",
                                         "Prompt tokens of requests that a worker admitted."})),
      cached_tokens_(metrics.AddCounter(
          {"quire_router_cached_tokens_total", "Of these, what its cache served."})),
      generation_tokens_(metrics.AddCounter(
          {"quire_router_generation_tokens_total", "Output tokens handed to clients."})),
      discarded_tokens_(metrics.AddCounter({"quire_router_discarded_tokens_total",
                                            "Output tokens accepted and not handed on, such as "
                                            "those behind a stop string."})),
      inexact_(metrics.AddCounter(
          {"quire_router_inexact_requests_total", "Requests carried on under other numerics."})),
      responses_cut_(metrics.AddCounter(
          {"quire_router_responses_cut_total", "Answers ended by --max-response-bytes."})),
      held_ahead_(metrics.AddCounter({"quire_router_prefill_ahead_waits_total",
                                      "Requests that --max-prefill-ahead alone made wait."})),
      live_requests_(
          metrics.AddGauge({"quire_router_live_requests", "Requests accepted and not yet ended."})),
      waiting_requests_(metrics.AddGauge(
          {"quire_router_waiting_requests", "Requests that wait for a worker, carry-ons too."})),
      suspect_prompts_(metrics.AddGauge(
          {"quire_router_suspect_prompts", "Prompts known, workers died or may have under them."})),
      index_bytes_(metrics.AddGauge(
          {"quire_router_cache_index_bytes", "Memory of what is known of the workers' caches."})),
      dispatch_(metrics, kDispatchCounts),
      cache_index_(metrics, kCacheIndexCounts),
      serving_(metrics),
      fleet_(metrics),
      admission_(metrics) {
  AddDecisions(metrics, policy);
  AddStates(metrics);
  for (const std::string_view limit : {"max_calls", "max_argument_bytes", "max_nesting"}) {
    answer_limits_[limit] = &metrics.AddCounter(
        {"quire_router_answer_limits_total",
         "Choices whose tool calls went past a limit, beyond which they are text.",
         {{"limit", std::string(limit)}}});
  }
  metrics
      .AddGauge({"quire_router_ready_without_workers",
                 "1: --ready-without-workers is set, workers may have scaled to zero."})
      .Set(from_zero ? 1 : 0);
}

void RouterMetrics::AddStates(Metrics& metrics) {
  for (size_t state = 0; state < cache_workers_.size(); ++state) {
    const std::string name(CacheStateName(static_cast<CacheState>(state)));
    cache_workers_[state] = &metrics.AddGauge({"quire_router_cache_index_workers",
                                               "Known workers by the state of their cache's index.",
                                               {{"state", name}}});
  }
  for (size_t phase = 0; phase < workers_.size(); ++phase) {
    const std::string name(WorkerPhaseName(static_cast<WorkerPhase>(phase)));
    workers_[phase] =
        &metrics.AddGauge({"quire_router_workers", "Workers by phase.", {{"phase", name}}});
  }
}

void RouterMetrics::AddDecisions(Metrics& metrics, const std::string& policy) {
  for (size_t i = 0; i < predictions_.size(); ++i) {
    const char* verdicts[] = {"exact", "raced", "wrong"};
    predictions_[i] = &metrics.AddCounter(
        {"quire_router_cache_predictions_total",
         "Predicted cached tokens held against the worker's; raced: an event lay between.",
         {{"verdict", verdicts[i]}}});
  }
  for (const std::string_view reason : RouteReasons(Policies())) {
    decisions_[reason].counter =
        &metrics.AddCounter({"quire_router_routing_decisions_total",
                             "Attempts placed, by why their worker was chosen.",
                             {{"policy", policy}, {"reason", std::string(reason)}}});
  }
}

void RouterMetrics::AnswerRead(std::string_view limit) {
  const auto counter = answer_limits_.find(limit);
  if (counter != answer_limits_.end()) counter->second->Add();
}

void RouterMetrics::RequestEnded(const RequestRecord& record, bool accepted) {
  request_seconds_.Observe(static_cast<double>(record.total_us) / kMicrosPerSecond);
  if (!accepted) return;
  prompt_tokens_.Add(record.prompt_tokens);
  cached_tokens_.Add(record.cached_tokens);
  generation_tokens_.Add(record.delivered_tokens);
  discarded_tokens_.Add(record.discarded_tokens);
  inexact_.Add(record.inexact ? 1 : 0);
}

void RouterMetrics::Update(const Dispatcher& dispatcher, const Admission& admission) {
  UpdateDispatch(dispatcher);
  fleet_.Update(dispatcher.fleet());
  admission_.Update(admission, dispatcher.fleet());
}

void RouterMetrics::UpdateDispatch(const Dispatcher& dispatcher) {
  dispatch_.Raise(dispatcher.counters());
  suspect_prompts_.Set(static_cast<double>(dispatcher.deaths().known()));
  waiting_requests_.Set(static_cast<double>(dispatcher.WaitingRequests()));
  std::array<int, 8> phases{};
  for (const WorkerRecord& worker : dispatcher.fleet().workers()) {
    if (worker.phase != WorkerPhase::kGone) ++phases[static_cast<size_t>(worker.phase)];
  }
  for (size_t i = 0; i < phases.size(); ++i) workers_[i]->Set(phases[i]);
  UpdateIndex(dispatcher.placement().index(), dispatcher.fleet().workers().size());
  for (const auto& [reason, count] : dispatcher.placement().decisions()) {
    Decisions& decisions = decisions_.at(reason);
    decisions.counter->Add(count - decisions.last);
    decisions.last = count;
  }
}

void RouterMetrics::UpdateIndex(const CacheIndex& index, size_t workers) {
  const CacheIndexCounters& now = index.counters();
  cache_index_.Raise(now);
  predictions_[0]->Add(now.predictions_exact - last_index_.predictions_exact);
  predictions_[1]->Add(now.predictions_raced - last_index_.predictions_raced);
  predictions_[2]->Add(now.predictions_wrong - last_index_.predictions_wrong);
  last_index_ = now;
  std::array<int, 6> states{};
  for (uint32_t i = 0; i < workers; ++i) ++states[static_cast<size_t>(index.state(WorkerIndex(i)))];
  for (size_t i = 0; i < states.size(); ++i) cache_workers_[i]->Set(states[i]);
  index_bytes_.Set(static_cast<double>(index.Bytes()));
}

}  // namespace quire
