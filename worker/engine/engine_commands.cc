// The effect of each command on the engine's state. Everything in a command comes from a peer: a
// command that does not fit (about an attempt that has ended, or an unknown choice) is refused or
// ignored as overtaken, never asserted on.
#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/draft/drafter.h"
#include "worker/engine/engine_state.h"
#include "worker/engine/submit_check.h"
#include "worker/sample/stop_rules.h"

namespace quire {
namespace {

constexpr uint32_t kQueueFullRetryMs = 1000;

// The requests with which a request shares computed blocks.
CacheIdentity IdentityOf(const Submit& submit, const EngineOptions& options) {
  if (!options.prefix_caching) return {};
  CacheIdentity identity;
  if (QUIRE_BUG(salt_ignored)) return identity;
  const std::string adapter = QUIRE_BUG(adapter_missing_in_root) ? "" : submit.adapter;
  identity.key = std::to_string(adapter.size()) + ":" + adapter + submit.salt;
  identity.root = RootHash(options.model_id, options.numerics_id, adapter, submit.salt);
  return identity;
}

}  // namespace

void Engine::State::EndRequest(Request& request, const ChoiceOutcome& end) {
  // With the last choice the request leaves the table, but not memory yet.
  for (const OwnedChoice& choice : request.choices) {
    if (!choice->ended) EndChoice(*choice, end);
  }
  QUIRE_CHECK(request.open_choices == 0);
  const bool failed = end.reason == EndReason::kFailed;
  QUIRE_CHECK_MSG(!failed || end.cause != FailureCause::kUnspecified, "a failure has a cause");
  if (failed) ++totals.failed[static_cast<size_t>(end.cause)];
}

void Engine::State::On(SubmitCommand command, int64_t now_us) {
  out.SubmitSeen(command.router, command.submit.submit_number);
  if (std::optional<Refused> refused = RefusalOf(command, now_us)) {
    refused->key = command.submit.key;
    refused->traceparent = std::move(command.submit.traceparent);
    refused->tracestate = std::move(command.submit.tracestate);
    refused->request_id = std::move(command.submit.request_id);
    ++totals.refused[static_cast<size_t>(refused->code)];
    out.AddRefused(command.router, std::move(*refused));
    return;
  }
  // A router that sends a newer attempt has given the older one up.
  const WireKey key{command.router, command.submit.key.request};
  if (Request* older = requests.FindAnyAttempt(key)) {
    EndRequest(*older, {.reason = EndReason::kCancelled, .message = "a newer attempt has come"});
  }
  Accept(std::move(command));
}

// Nothing of a refused request remains.
std::optional<Refused> Engine::State::RefusalOf(const SubmitCommand& command, int64_t now_us) {
  const Submit& submit = command.submit;
  const WireKey key{command.router, submit.key.request};
  std::optional<Attempt> known = requests.EndedAttempt(key);
  if (const Request* live = requests.FindAnyAttempt(key)) known = live->submit.key.attempt;
  Refused refused;
  if (known.has_value() && submit.key.attempt <= *known) {
    const bool same = submit.key.attempt == *known;
    refused.code = same ? RefusalCode::kDuplicate : RefusalCode::kStaleAttempt;
    refused.message = same ? "this attempt is known already" : "a newer attempt is known";
    return refused;
  }
  if (draining) {
    refused.code = RefusalCode::kDraining;
    refused.message = "this worker is leaving";
    return refused;
  }
  if (device_lost) {
    refused.code = RefusalCode::kNotReady;
    refused.message = "this worker's device was lost and is being restarted";
    refused.retry_after_ms = kQueueFullRetryMs;
    return refused;
  }
  if (std::optional<Refused> invalid = CheckSubmit(submit, options, adapter_slots)) return invalid;
  if (now_us >= command.deadline_us) {
    refused.code = RefusalCode::kDeadlinePassed;
    refused.message = "its deadline has passed";
    return refused;
  }
  const int64_t prompt_length = static_cast<int64_t>(submit.prompt_ids.size());
  const int64_t longest =
      prompt_length + OutputLimit(submit.sampling, prompt_length, options.max_model_len);
  if (!scheduler.CanEverFit(longest)) {
    refused.code = RefusalCode::kTooLarge;
    refused.field = "prompt_ids";
    refused.message = "prompt_ids: prompt and max_tokens, " + std::to_string(longest) +
                      " tokens, can never fit in this worker's cache";
    return refused;
  }
  if (waiting_requests >= static_cast<size_t>(options.max_waiting_requests)) {
    refused.code = RefusalCode::kQueueFull;
    refused.message = std::to_string(options.max_waiting_requests) + " requests are waiting";
    refused.retry_after_ms = kQueueFullRetryMs;
    return refused;
  }
  return std::nullopt;
}

void Engine::State::Accept(SubmitCommand command) {
  auto owned = std::make_unique<Request>();
  owned->router = command.router;
  owned->submit = std::move(command.submit);
  QUIRE_CHECK(owned->submit.prediction_ids.size() <= kMaxPredictionIds);
  if (options.drafter == nullptr || !options.drafter->UsesPredictions()) {
    owned->submit.prediction_ids = {};
  }
  // No answer reaches beyond the context.
  const std::span<const TokenId> predicted = owned->submit.prediction_ids;
  const size_t context = static_cast<size_t>(options.max_model_len);
  if (predicted.size() > context) {
    owned->submit.prediction_ids =
        std::vector<TokenId>(predicted.begin(), predicted.begin() + options.max_model_len);
  }
  owned->prompt_tokens = static_cast<uint32_t>(owned->submit.prompt_ids.size());
  owned->deadline_us = command.deadline_us;
  owned->accepted_us = record_us;
  const bool compiled = owned->submit.constraint.kind != ConstraintKind::kNone;
  QUIRE_CHECK_MSG(compiled == (command.grammar != nullptr || command.compiling != 0),
                  "a constraint comes with its grammar, or the number of what compiles it");
  owned->constraint = {.kind = owned->submit.constraint.kind, .kept = command.grammar != nullptr};
  owned->grammar = std::move(command.grammar);
  owned->compiling = command.compiling;
  owned->cache = IdentityOf(owned->submit, options);
  if (!owned->submit.adapter.empty()) {
    const std::optional<int> slot = adapter_slots.SlotOf(owned->submit.adapter);
    QUIRE_CHECK_MSG(slot.has_value(), "an adapter that is not held was refused");
    owned->adapter_slot = *slot;
    adapter_slots.Touch(*slot, record_us);
  }
  next_timeout_us = std::min(next_timeout_us, owned->deadline_us);
  const uint32_t count = static_cast<uint32_t>(owned->submit.choices.size());
  for (uint32_t i = 0; i < count; ++i) owned->choices.push_back(choices.Make());
  owned->open_choices = count;
  ++waiting_requests;
  Request& request = requests.Add(std::move(owned));
  // Choices that had ended elsewhere first: the last to end here is then really the last.
  for (uint32_t i = 0; i < count; ++i) {
    if (!request.submit.choices[i].ended) continue;
    request.choices[i]->ended = true;
    request.choices[i]->request = &request;
    --request.open_choices;
  }
  QUIRE_CHECK(request.open_choices > 0);
  const uint64_t arrival = next_arrival++;
  for (uint32_t i = 0; i < count; ++i) {
    if (request.choices[i]->ended) continue;
    request.choices[i]->arrival = arrival;
    AddChoice(request, i);
  }
  request.submit.prompt_ids = {};
  if (request.compiling == 0) Enter(request);
}

void Engine::State::CountAttempt(Request& request) {
  QUIRE_CHECK(!request.counted);
  request.counted = true;
  ++totals.attempts;
  totals.prompt_tokens += request.prompt_tokens;
}

// The request has all that it needs: its choices queue for rows.
void Engine::State::Enter(Request& request) {
  QUIRE_CHECK(request.compiling == 0);
  CountAttempt(request);
  if (request.submit.sampling.beam_width > 0) return StartBeams(request);
  // A journal may already hold the token that ends a choice, when only the end itself was lost.
  Choice* leader = nullptr;                       // computes the prompt for all
  const size_t choices = request.choices.size();  // the request may go with its last choice
  for (size_t i = 0; i < choices; ++i) {
    Choice* const choice = request.choices[i].get();
    if (choice->ended) continue;
    const StopRules rules{choice->end_ids, choice->min_tokens, choice->output_limit};
    std::optional<StopVerdict> stop;
    if (choice->OutputCount() > 0) {
      stop = CheckStop(rules, choice->tokens.back(), choice->OutputCount());
    }
    if (stop.has_value()) {
      EndChoice(*choice, {.reason = stop->reason,
                          .by_stop_token = stop->by_stop_token,
                          .stop_token_id = stop->stop_token_id});
    } else if (leader == nullptr) {
      leader = choice;
      scheduler.Enqueue(*choice);
    } else {
      scheduler.EnqueueBehind(*choice, *leader);
    }
  }
}

// Outputs that come with the Submit count as outputs: penalties, limits and noise continue from
// them.
void Engine::State::AddChoice(Request& request, uint32_t index) {
  const Submit& submit = request.submit;
  const std::vector<TokenId>& outputs = submit.choices[index].outputs;
  Choice& choice = *request.choices[index];
  choice.request = &request;
  choice.router = request.router;
  choice.key = submit.key;
  choice.index = index;
  choice.adapter_slot = request.adapter_slot;
  choice.constrained = submit.constrained();
  constrained_choices += choice.constrained;
  choice.logprobs = submit.sampling.logprobs;
  choice.min_tokens = submit.sampling.min_tokens;
  choice.choice = index;
  choice.id = next_sequence++;
  choice.priority = submit.priority;
  choice.tenant = submit.tenant;
  choice.prompt_length = static_cast<int32_t>(request.prompt_tokens);
  choice.output_limit = OutputLimit(submit.sampling, choice.prompt_length, options.max_model_len);
  choice.sampling = &submit.sampling;
  // An attempt that resumes outputs does so for a router that already has the prompt's logprobs.
  choice.wants_prompt_logprobs =
      index == 0 && submit.sampling.prompt_logprobs > 0 &&
      (QUIRE_BUG(resume_scores_again) ||
       std::all_of(submit.choices.begin(), submit.choices.end(), [](const ResumedChoice& resumed) {
         return !resumed.ended && resumed.outputs.empty();
       }));
  choice.end_ids = EndIds(submit.sampling, options.eos_token_ids);
  choice.end_filter = EndFilter(choice.end_ids);
  choice.tokens.assign(submit.prompt_ids.begin(), submit.prompt_ids.end());
  choice.tokens.insert(choice.tokens.end(), outputs.begin(), outputs.end());
  choice.resumed = !outputs.empty();
  if (choice.resumed) choice.high_water = static_cast<int64_t>(choice.tokens.size());
  if (options.prefix_caching) choice.cache = &request.cache;
  if (submit.initial_window > 0) {
    choice.window_end = static_cast<int64_t>(outputs.size()) + submit.initial_window;
    if (QUIRE_BUG(window_off_by_one)) ++choice.window_end;
  }
  QUIRE_CHECK(choice.OutputCount() <= choice.output_limit);
}

void Engine::State::On(const CancelCommand& command, int64_t /*now_us*/) {
  Request* request = requests.Find(command.router, command.cancel.key);
  if (request == nullptr) return;  // it has ended in the meantime
  if (QUIRE_BUG(cancel_lost_in_queue) && !request->Admitted()) return;
  const ChoiceOutcome end{.reason = EndReason::kCancelled};
  const bool one_choice = command.cancel.one_choice && !QUIRE_BUG(cancel_of_one_choice_ends_all);
  if (!one_choice) return EndRequest(*request, end);
  if (command.cancel.choice >= request->choices.size()) return;
  Choice& choice = *request->choices[command.cancel.choice];
  if (!choice.ended) EndChoice(choice, end);
}

void Engine::State::On(const FinishCommand& command, int64_t /*now_us*/) {
  const Finish& finish = command.finish;
  Request* request = requests.Find(command.router, finish.key);
  if (request == nullptr || finish.choice >= request->choices.size()) return;
  Choice& choice = *request->choices[finish.choice];
  if (choice.ended) return;
  const int64_t past_end = choice.OutputCount() - int64_t{finish.output_count};
  const int64_t discarded = std::clamp<int64_t>(past_end, 0, choice.generated);
  if (!QUIRE_BUG(finish_not_billed)) choice.discarded += discarded;
  totals.discarded_tokens += static_cast<uint64_t>(discarded);
  const bool named = finish.reason != EndReason::kUnspecified;
  EndChoice(choice, {.reason = named ? finish.reason : EndReason::kStop});
}

void Engine::State::On(const GrantCommand& command, int64_t /*now_us*/) {
  const Grant& grant = command.grant;
  Request* request = requests.Find(command.router, grant.key);
  if (request == nullptr || grant.choice >= request->choices.size()) return;
  Choice& choice = *request->choices[QUIRE_BUG(grant_of_another_choice) ? 0 : grant.choice];
  if (choice.ended || choice.window_end == kUnlimitedWindow) return;
  const uint64_t up_to = std::min<uint64_t>(grant.up_to_index, INT32_MAX);
  scheduler.Grant(choice, static_cast<int64_t>(up_to));
  if (!choice.WindowUsedUp()) choice.stalled_since_us = kNeverMicros;
}

void Engine::State::On(const RouterLostCommand& command, int64_t /*now_us*/) {
  auto at = requests.live().lower_bound({command.router, RequestNumber(0)});
  while (at != requests.live().end() && at->first.router == command.router) {
    Request& request = *at->second;
    ++at;  // ending the request takes it out of the map
    EndRequest(request, {.reason = EndReason::kRouterLost, .retryable = true});
    if (QUIRE_BUG(router_lost_ends_one_request)) break;
  }
  out.ForgetRouter(command.router);
  cache_reports.Forget(command.router);
}

void Engine::State::On(const WatchCommand& command, int64_t /*now_us*/) {
  cache_reports.Watch(command.router);
}

void Engine::State::On(const SnapshotCommand& command, int64_t /*now_us*/) {
  cache_reports.Begin(command.router, command.snapshot_number);
}

void Engine::State::On(const SnapshotSentCommand& command, int64_t /*now_us*/) {
  cache_reports.PartsSent(command.router, command.snapshot_number, command.parts);
}

// Waiting work goes elsewhere at once; running work may finish until the deadline (see Expire).
void Engine::State::On(const DrainCommand& command, int64_t /*now_us*/) {
  draining = true;
  drain_deadline_us = std::min(drain_deadline_us, command.deadline_us);
  for (auto at = requests.live().begin(); at != requests.live().end();) {
    Request& request = *(at++)->second;
    if (request.Admitted()) continue;
    EndRequest(request, {.reason = EndReason::kDrained, .retryable = true});
  }
}

// Steps in flight name no slot that nothing in memory uses: it may change at once.
void Engine::State::On(AdapterCommand command, int64_t now_us) {
  std::vector<bool> in_use(static_cast<size_t>(adapter_slots.count()));
  for (int slot = 0; slot < adapter_slots.count(); ++slot) {
    in_use[static_cast<size_t>(slot)] =
        requests.UsesAdapterSlot(slot) && !QUIRE_BUG(adapter_slot_taken_in_use);
  }
  AdapterPlaced placed{command.number, -1, {}};
  if (const std::optional<int> held = adapter_slots.SlotOf(command.digest)) {
    placed.slot = *held;
    adapter_slots.Touch(*held, now_us);
  } else if (const std::optional<int> slot =
                 adapter_slots.Choose(in_use, command.kept, command.named)) {
    placed.slot = *slot;
    placed.evicted = adapter_slots.In(*slot);
    adapter_slots.Put(*slot, command.digest, now_us);
    runner.SetAdapter(*slot, std::move(command.weights));
  }
  adapters_placed.push_back(std::move(placed));
}

}  // namespace quire
