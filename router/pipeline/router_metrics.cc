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
      serving_(metrics),
      fleet_(metrics),
      admission_(metrics) {
  AddDecisions(metrics, policy);
  AddStates(metrics);
  metrics
      .AddGauge({"quire_router_ready_without_workers",
                 "1: --ready-without-workers is set, workers may have scaled to zero."})
      .Set(from_zero ? 1 : 0);
  const auto counter = [&metrics](const char* name, const char* help) {
    return &metrics.AddCounter({std::string("quire_router_") + name + "_total", help});
  };
  dispatch_ = {
      counter("attempts", "Submits sent to workers."),
      counter("accepted_tokens", "Output tokens accepted from workers."),
      counter("stale_outputs", "Outputs dropped: their attempt is not current."),
      counter("duplicate_outputs", "Outputs dropped: their tokens had come already."),
      counter("broken_attempts", "Attempts given up: outputs were missing or too many."),
      counter("placement_retries", "Second attempts before any output."),
      counter("carry_ons", "Attempts that resumed an answer on another worker."),
      counter("lost_links", "Attaches that ended, for whatever reason."),
      counter("placement_retries_denied", "Retries that --placement-retry-percent denied."),
      counter("inexact_carry_ons", "Carry-ons on a worker of other numerics."),
      counter("paced_carry_ons", "Carry-ons that --max-carry-on-tokens made wait."),
      counter("worker_deaths", "Workers that died: epochs that ended without draining."),
      counter("worker_deaths_taken_back", "Deaths counted early of workers that lived."),
      counter("silent_workers", "Workers given up because nothing came from them."),
      counter("kept_silences", "Silent workers that were kept, since too many were."),
      counter("suspect_requests", "Requests ended by --max-worker-deaths."),
      counter("suspect_prompts_refused", "Prompts refused, workers had died under them."),
      counter("suspect_prompts_forgotten", "Of these, what --max-suspect-prompts made forget."),
      counter("duplicate_workers", "Links refused: their worker_id is another link's."),
      counter("full_windows", "Times that --window-tokens made a worker wait for a client."),
      counter("late_outputs", "Outputs dropped: their choice had ended."),
      counter("relayed_frames", "Step frames taken from workers."),
      &metrics.AddSecondsCounter({"quire_router_relay_seconds_total",
                                  "Time spent on them, from frame to the clients' writes."})};
  cache_index_ = {counter("cache_index_stale", "Times that a worker's cache events had a gap."),
                  counter("cache_index_snapshots", "Snapshots asked for."),
                  counter("cache_index_snapshots_delayed", "Delayed by --max-snapshots."),
                  counter("cache_index_over_limit", "Workers left out by --max-index-bytes.")};
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
  const DispatchCounters& now = dispatcher.counters();
  const uint64_t changes[] = {now.attempts - last_.attempts,
                              now.tokens_accepted - last_.tokens_accepted,
                              now.outputs_stale - last_.outputs_stale,
                              now.outputs_duplicate - last_.outputs_duplicate,
                              now.attempts_broken - last_.attempts_broken,
                              now.placement_retries - last_.placement_retries,
                              now.carry_ons - last_.carry_ons,
                              now.links_lost - last_.links_lost,
                              now.placement_retries_denied - last_.placement_retries_denied,
                              now.carry_ons_inexact - last_.carry_ons_inexact,
                              now.carry_ons_paced - last_.carry_ons_paced,
                              now.worker_deaths - last_.worker_deaths,
                              now.worker_deaths_taken_back - last_.worker_deaths_taken_back,
                              now.silences - last_.silences,
                              now.silences_kept - last_.silences_kept,
                              now.requests_suspect - last_.requests_suspect,
                              now.suspect_prompts_refused - last_.suspect_prompts_refused,
                              now.suspect_prompts_forgotten - last_.suspect_prompts_forgotten,
                              now.links_of_duplicates - last_.links_of_duplicates,
                              now.windows_full - last_.windows_full,
                              now.outputs_late - last_.outputs_late,
                              now.frames_relayed - last_.frames_relayed,
                              now.relay_us - last_.relay_us};
  suspect_prompts_.Set(static_cast<double>(dispatcher.deaths().known()));
  waiting_requests_.Set(static_cast<double>(dispatcher.WaitingRequests()));
  static_assert(std::size(changes) == std::tuple_size_v<decltype(dispatch_)>);
  for (size_t i = 0; i < dispatch_.size(); ++i) dispatch_[i]->Add(changes[i]);
  last_ = now;
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
  predictions_[0]->Add(now.predictions_exact - last_index_.predictions_exact);
  predictions_[1]->Add(now.predictions_raced - last_index_.predictions_raced);
  predictions_[2]->Add(now.predictions_wrong - last_index_.predictions_wrong);
  cache_index_[0]->Add(now.became_stale - last_index_.became_stale);
  cache_index_[1]->Add(now.snapshots - last_index_.snapshots);
  cache_index_[2]->Add(now.snapshots_delayed - last_index_.snapshots_delayed);
  cache_index_[3]->Add(now.over_limit - last_index_.over_limit);
  last_index_ = now;
  std::array<int, 6> states{};
  for (uint32_t i = 0; i < workers; ++i) ++states[static_cast<size_t>(index.state(WorkerIndex(i)))];
  for (size_t i = 0; i < states.size(); ++i) cache_workers_[i]->Set(states[i]);
  index_bytes_.Set(static_cast<double>(index.Bytes()));
}

}  // namespace quire
