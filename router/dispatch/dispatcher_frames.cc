// Workers' frames about attempts, compared with the journal, and the events that come of them.
#include <algorithm>
#include <optional>

#include "common/check.h"
#include "common/planted_bug.h"
#include "router/dispatch/dispatcher.h"
#include "router/dispatch/refusal.h"

namespace quire {

std::optional<DispatchEvent> Dispatcher::NextEvent() {
  while (events_.empty() && Advance()) {
  }
  return events_.Next();
}

bool Dispatcher::Advance() {
  if (relay_.frame != nullptr) {
    RelayNext();
  } else if (std::exchange(due_.snapshots, false)) {
    AskForSnapshots();
  } else if (std::exchange(due_.waiting, false)) {
    TryWaiting();
  } else if (std::exchange(due_.room, false)) {
    events_.Add(RoomMade());
  } else {
    return false;
  }
  return true;
}

void Dispatcher::OnStep(WorkerIndex worker, StepFrame& step) {
  QUIRE_CHECK_MSG(relay_.frame == nullptr, "one frame at a time");
  const Micros now = Now();
  relay_ = {worker, &step, 0, now, fleet_.worker(worker).phase};
  fleet_.Stepped(worker, step, now);
  NoteUnseen(worker);
  placement_.index().Stepped(worker, step, now);
  events_.Wake();
  QUIRE_CHECK_MSG(relay_.frame == nullptr, "who is woken drains all events");
  ++counters_.frames_relayed;
  counters_.relay_us += static_cast<uint64_t>(Now() - now);
}

void Dispatcher::RelayNext() {
  const WorkerIndex worker = relay_.worker;
  StepFrame& step = *relay_.frame;
  size_t i = relay_.next++;
  if (i < step.admitted.size()) return HandleAdmitted(worker, step.admitted[i]);
  i -= step.admitted.size();
  if (i < step.prompt_logprobs.size()) return HandlePrompt(worker, step.prompt_logprobs[i]);
  i -= step.prompt_logprobs.size();
  if (i < step.outputs.size()) return HandleOutput(worker, step.outputs[i]);
  i -= step.outputs.size();
  if (i < step.ended.size()) return HandleEnded(worker, step.ended[i]);
  i -= step.ended.size();
  if (i < step.refused.size()) return HandleRefused(worker, step.refused[i]);
  EndRelay();
}

void Dispatcher::EndRelay() {
  const WorkerIndex worker = relay_.worker;
  relay_.frame = nullptr;
  const DeathNews news = fleet_.StepSeen(worker, relay_.began);
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
  if (fleet_.worker(worker).phase != relay_.before) events_.Add(FleetChanged{worker});
  due_ = {true, true, true};
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
  events_.Add(AttemptAdmitted{admitted.key.request, worker, admitted.cached_tokens});
}

void Dispatcher::HandlePrompt(WorkerIndex worker, PromptLogprobs& part) {
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
  part.first_position += *known;
  part.logprobs.erase(part.logprobs.begin(), part.logprobs.begin() + *known);
  part.ranks.erase(part.ranks.begin(), part.ranks.begin() + *known);
  if (!part.top.empty()) part.top.erase(part.top.begin(), part.top.begin() + *known);
  events_.Add(PromptScored{&part});
}

void Dispatcher::HandleBroken(LiveDispatch& live) {
  ++counters_.attempts_broken;
  live.excluded.push_back(live.worker);
  ++live.failures;
  Abandon(live, /*tell_worker=*/true, AttemptEnd::kBroken);
  RetryPlacement(live, {ApiCode::kInternal, "a worker broke the order of its outputs", "", 0});
}

void Dispatcher::HandleOutput(WorkerIndex worker, Output& output) {
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
  if (QUIRE_BUG(logprob_of_the_seam_lost) && first && live->carry_on) output.logprobs.clear();
  events_.Add(OutputAccepted{&output});
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
    events_.Add(ChoiceOver{&ended});
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
