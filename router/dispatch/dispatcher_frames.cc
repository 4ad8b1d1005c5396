// Workers' frames about attempts, compared with the journal.
#include <algorithm>
#include <optional>

#include "common/check.h"
#include "common/planted_bug.h"
#include "router/dispatch/dispatcher.h"
#include "router/dispatch/refusal.h"

namespace quire {

void Dispatcher::OnStep(WorkerIndex worker, const StepFrame& step) {
  const WorkerPhase before = fleet_.worker(worker).phase;
  const Micros now = Now();
  fleet_.Stepped(worker, step, now);
  NoteUnseen(worker);
  placement_.index().Stepped(worker, step, now);
  for (const Admitted& admitted : step.admitted) HandleAdmitted(worker, admitted);
  for (const PromptLogprobs& part : step.prompt_logprobs) HandlePrompt(worker, part);
  for (const Output& output : step.outputs) HandleOutput(worker, output);
  for (const Ended& ended : step.ended) HandleEnded(worker, ended);
  for (const Refused& refused : step.refused) HandleRefused(worker, refused);
  const DeathNews news = fleet_.StepSeen(worker, now);
  CountNews(news);
  std::vector<PromptKey> under;
  if (news == DeathNews::kDied) {
    for (const RequestNumber number : at_[worker.value()].running) {
      under.push_back(live_.at(number)->Prompt());
    }
    CountLoss(worker, /*stuck=*/true);
  }
  if (fleet_.worker(worker).stuck) LoseAttemptsOf(worker, AttemptEnd::kStuck);
  Condemn(under);
  if (at_[worker.value()].moving) MoveAway(worker);
  if (fleet_.worker(worker).phase != before) listener_.OnFleetChanged(worker);
  AskForSnapshots();
  TryWaiting();
  listener_.OnRoom();
  ++counters_.frames_relayed;
  counters_.relay_us += static_cast<uint64_t>(Now() - now);
}

LiveDispatch* Dispatcher::FindCurrent(WorkerIndex worker, const AttemptKey& key) {
  LiveDispatch* live = Find(key.request);
  if (live == nullptr) return nullptr;
  const bool current = live->running && live->worker == worker && live->attempt == key.attempt;
  if (QUIRE_BUG(no_fence)) return live->running ? live : nullptr;
  return current ? live : nullptr;
}

void Dispatcher::Answered(LiveDispatch& live) {
  if (live.answered) return;
  QUIRE_CHECK(live.running);
  live.answered = true;
  fleet_.AttemptAnswered(live.worker);
}

void Dispatcher::HandleAdmitted(WorkerIndex worker, const Admitted& admitted) {
  LiveDispatch* live = FindCurrent(worker, admitted.key);
  if (live == nullptr) return;
  Answered(*live);
  live->report.admitted = true;
  live->report.admitted_at = Now();
  live->report.cached_tokens = admitted.cached_tokens;
  placement_.OnAdmitted(worker, admitted, live->ticket);
  listener_.OnAdmitted(admitted.key.request, fleet_.worker(worker), admitted.cached_tokens);
}

void Dispatcher::HandlePrompt(WorkerIndex worker, const PromptLogprobs& part) {
  LiveDispatch* live = FindCurrent(worker, part.key);
  if (live == nullptr) return;
  Answered(*live);
  const uint32_t count = static_cast<uint32_t>(part.logprobs.size());
  const bool shaped =
      part.ranks.size() == count &&
      (live->request.submit.sampling.prompt_logprobs <= 1 || part.top.size() == count);
  const std::optional<uint32_t> known =
      shaped ? live->journal.AcceptPrompt(part.first_position, count) : std::nullopt;
  if (!known) return HandleBroken(*live);
  // Known positions are not requested again: a worker that resumes need not compute them.
  if (live->journal.PromptComplete()) live->request.submit.sampling.prompt_logprobs = 0;
  if (*known == count) return;
  if (*known == 0) return listener_.OnPromptLogprobs(part.key.request, part);
  PromptLogprobs rest = part;
  rest.first_position += *known;
  rest.logprobs.erase(rest.logprobs.begin(), rest.logprobs.begin() + *known);
  rest.ranks.erase(rest.ranks.begin(), rest.ranks.begin() + *known);
  if (!rest.top.empty()) rest.top.erase(rest.top.begin(), rest.top.begin() + *known);
  listener_.OnPromptLogprobs(part.key.request, rest);
}

void Dispatcher::HandleBroken(LiveDispatch& live) {
  ++counters_.attempts_broken;
  live.excluded.push_back(live.worker);
  ++live.failures;
  Abandon(live, /*tell_worker=*/true, AttemptEnd::kBroken);
  RetryPlacement(live, {ApiCode::kInternal, "a worker broke the order of its outputs", "", 0});
}

void Dispatcher::HandleOutput(WorkerIndex worker, const Output& output) {
  LiveDispatch* live = FindCurrent(worker, output.key);
  if (live == nullptr) {
    ++counters_.outputs_stale;
    return;
  }
  Answered(*live);
  if (!live->journal.PromptComplete()) return HandleBroken(*live);
  const uint64_t granted = live->Windowed() && output.choice < live->windows.size()
                               ? live->windows[output.choice].granted()
                               : 0;
  switch (live->journal.Accept(output.choice, output.first_index, output.ids, granted)) {
    case Verdict::kEnded:
      ++counters_.outputs_late;
      return;
    case Verdict::kDuplicate:
      ++counters_.outputs_duplicate;
      return;
    case Verdict::kGap:
    case Verdict::kOverrun:
    case Verdict::kNoChoice:
      return HandleBroken(*live);
    case Verdict::kAccepted:
      break;
  }
  const bool first = live->report.first_output_at < 0;
  if (first) live->report.first_output_at = Now();
  counters_.tokens_accepted += output.ids.size();
  live->report.accepted_tokens += output.ids.size();
  if (!output.ids.empty()) {
    live->stalled_carry_ons = 0;
    live->excluded.clear();
    StopPacing(*live);
  }
  if (granted != 0 && live->journal.accepted(output.choice) == granted) ++counters_.windows_full;
  if (live->request.router_is_taker) {
    Taken(output.key.request, output.choice, live->journal.accepted(output.choice));
  }
  if (QUIRE_BUG(logprob_of_the_seam_lost) && first && live->carry_on) {
    Output bare = output;
    bare.logprobs.clear();
    return listener_.OnOutput(output.key.request, bare);
  }
  listener_.OnOutput(output.key.request, output);
}

void Dispatcher::HandleEnded(WorkerIndex worker, const Ended& ended) {
  LiveDispatch* live = FindCurrent(worker, ended.key);
  if (live == nullptr || ended.choice >= live->journal.choice_count()) return;
  if (live->journal.ended(ended.choice)) return;  // this router ended it first
  Answered(*live);
  // A preempted attempt may find more of its prompt in the cache when it returns than when it was
  // admitted: both records have the worker's final count.
  if (ended.last_choice && live->report.admitted) {
    const auto prompt = static_cast<uint32_t>(live->request.submit.prompt_ids.size());
    live->report.cached_tokens =
        std::max(live->report.cached_tokens, std::min(prompt, ended.usage.cached_tokens));
  }
  if (ended.reason == EndReason::kStop || ended.reason == EndReason::kLength) {
    if (!live->journal.PromptComplete()) return HandleBroken(*live);
    live->journal.End(ended.choice, live->journal.accepted(ended.choice));
    if (live->journal.AllEnded()) {
      Abandon(*live, /*tell_worker=*/false, AttemptEnd::kFinished);
      Forget(*live);
    }
    listener_.OnChoiceOver(ended.key.request, ended);
    return;
  }
  const ApiError error = ErrorOfEnd(ended);
  const bool drained = ended.reason == EndReason::kDrained;
  const bool lost_sight = ended.reason == EndReason::kRouterLost;
  Abandon(*live, /*tell_worker=*/true, AttemptEndOf(ended.reason));
  if (!WorthAnotherAttempt(ended)) return Fail(*live, error);
  // A worker that drains accepts nothing anyway; one that lost its connection to this router is as
  // good as any other; one that failed is not.
  if (drained || lost_sight) {
    CarryOn(*live, error);
    return;
  }
  live->excluded.push_back(worker);
  ++live->failures;
  RetryPlacement(*live, error);
}

void Dispatcher::HandleRefused(WorkerIndex worker, const Refused& refused) {
  LiveDispatch* live = FindCurrent(worker, refused.key);
  if (live == nullptr) return;
  Answered(*live);
  Abandon(*live, /*tell_worker=*/false, AttemptEnd::kRefused);
  const ApiError error = ErrorOfRefusal(refused);
  if (!WorthAnotherWorker(refused.code)) return Fail(*live, error);
  live->excluded.push_back(worker);
  if (refused.code == RefusalCode::kDraining) {
    CarryOn(*live, error);  // it was in flight when the worker began to drain
  } else {
    RetryPlacement(*live, error);
  }
}

}  // namespace quire
