// What happens to requests whose worker refuses, leaves or dies: the next attempt, or the end.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/planted_bug.h"
#include "common/wire/features.h"
#include "router/dispatch/dispatcher.h"
#include "router/dispatch/refusal.h"

namespace quire {

// ------------------------------------------------------------------------------- from the links

absl::Status Dispatcher::CheckHello(WorkerIndex worker, const WorkerHello& hello) {
  absl::Status unique = fleet_.CheckUnique(worker, hello, Now());
  if (!unique.ok()) ++counters_.links_of_duplicates;
  return unique;
}

void Dispatcher::OnLinkUp(WorkerIndex worker, const WorkerHello& hello) {
  const DeathNews news = fleet_.Greeted(worker, hello.epoch, Now());
  CountNews(news);
  std::vector<PromptKey> under;
  if (news == DeathNews::kLives || news == DeathNews::kTakenBack) {
    ledger_.Lives(worker);
  } else {
    under = ledger_.Died(worker);
  }
  // The phase shows whether it may be used, and the refusal why not.
  const absl::Status usable = fleet_.Attached(worker, hello, executor_.clock().UnixSeconds());
  QUIRE_CHECK(usable.ok() || fleet_.worker(worker).phase == WorkerPhase::kRefused);
  // Requests that failed there may try it again.
  for (auto& [number, live] : live_) std::erase(live->excluded, worker);
  if (usable.ok() && options_.policy->wants_caches) {
    placement_.index().Greeted(worker, hello, Now());
    AskForSnapshots();
  }
  Condemn(under);
  events_.Add(FleetChanged{worker});
  due_.waiting = due_.room = true;
  events_.Wake();
}

void Dispatcher::OnLinkDown(WorkerIndex worker, LinkDownReason reason, const absl::Status& why) {
  AtWorker& at = at_[worker.value()];
  NoteUnseen(worker);
  const bool attached = fleet_.worker(worker).attached;
  const bool draining = attached && fleet_.worker(worker).draining;
  if (at.move_timer != 0) executor_.Cancel(at.move_timer);
  at.move_timer = 0;
  at.moving = false;
  if (attached) {
    ++counters_.links_lost;
    counters_.silences += reason == LinkDownReason::kSilent ? 1 : 0;
    fleet_.LinkLost(worker, reason == LinkDownReason::kSilent, Now());
    if (!draining) CountLoss(worker, /*stuck=*/false);
  }
  adapter_orders_.Lost(worker);
  placement_.index().Lost(worker);
  fleet_.Detached(worker, StatusMessage(why).substr(0, kMaxHelloStringBytes), Now());
  LoseAttemptsOf(worker, draining ? AttemptEnd::kDrained : AttemptEnd::kLost);
  if (reason == LinkDownReason::kConnectionRefused) {
    const DeathNews news = fleet_.Refused(worker, Now());
    CountNews(news);
    if (news == DeathNews::kDied) Condemn(ledger_.Refused(worker));
  }
  events_.Add(FleetChanged{worker});
  due_.waiting = true;
  events_.Wake();
}

void Dispatcher::OnAdapters(WorkerIndex worker, const AdaptersChanged& changed) {
  fleet_.AdaptersChanged(worker, changed, executor_.clock().UnixSeconds());
  // Requests that failed there because it had no adapter for them may try it again.
  for (auto& [number, live] : live_) std::erase(live->excluded, worker);
  events_.Add(FleetChanged{worker});
  due_.waiting = due_.room = true;
  events_.Wake();
}

void Dispatcher::OnAdapterResult(WorkerIndex worker, const AdapterResult& result) {
  adapter_orders_.Answered(worker, result);
}

bool Dispatcher::OnSilent(WorkerIndex worker) {
  const WorkerPhase before = fleet_.worker(worker).phase;
  if (fleet_.MayGiveUpSilent(worker)) return true;
  if (fleet_.worker(worker).phase != before) {
    ++counters_.silences_kept;
    events_.Add(FleetChanged{worker});
    due_.waiting = true;
    events_.Wake();
  }
  return false;
}

// The worker continues its work; when its time is up, this router moves the requests that have
// somewhere to go. The others run on there until the worker ends them.
void Dispatcher::OnDraining(WorkerIndex worker, uint64_t remaining_ms) {
  fleet_.Draining(worker);
  AtWorker& at = at_[worker.value()];
  if (at.move_timer != 0) executor_.Cancel(at.move_timer);
  constexpr uint64_t kLongest = uint64_t{7} * 24 * 3600 * 1000;
  const Micros remaining = static_cast<Micros>(std::min(remaining_ms, kLongest)) * kMicrosPerMilli;
  at.move_timer = executor_.PostAt(Now() + remaining, [this, worker] {
    AtWorker& leaving = at_[worker.value()];
    leaving.move_timer = 0;
    leaving.moving = true;
    MoveAway(worker);
    events_.Wake();
  });
  events_.Add(FleetChanged{worker});
  events_.Wake();
}

void Dispatcher::MoveAway(WorkerIndex worker) {
  const std::set<RequestNumber> numbers = at_[worker.value()].running;
  for (const RequestNumber number : numbers) {
    LiveDispatch& live = *live_.at(number);
    if (live.journal.TotalOutputs() > kMaxResumedIds || !options_.carry_on || Held(live)) continue;
    const bool before = std::exchange(live.carry_on, true);
    PlacementTicket ticket;
    const Placement::Placed placed = ChooseFor(live, SparedFrom(live), ticket);
    if (placed.outcome != PlaceOutcome::kPlaced) {
      live.carry_on = before;
      continue;
    }
    Abandon(live, /*tell_worker=*/true, AttemptEnd::kDrained);
    ++counters_.carry_ons;
    live.ticket = std::move(ticket);
    Send(live, placed.choice);
  }
}

void Dispatcher::OnSnapshotChunk(WorkerIndex worker, const SnapshotChunk& chunk) {
  placement_.index().Snapshot(worker,
                              {chunk.snapshot_number, chunk.cache_kind, chunk.hashes, chunk.last},
                              executor_.clock().Now());
  AskForSnapshots();
}

void Dispatcher::AskForSnapshots() {
  while (const auto ask = placement_.index().NextAsk(executor_.clock().Now())) {
    QUIRE_CHECK_MSG(LinkOf(ask->worker).up(), "a worker without a link is not followed");
    LinkOf(ask->worker).SendSnapshotRequest(ask->number);
  }
}

// -------------------------------------------------------------------------- the next attempt

void Dispatcher::RetryPlacement(LiveDispatch& live, const ApiError& error) {
  QUIRE_CHECK(!live.running);
  if (live.failures > options_.limits.max_failed_attempts) return Fail(live, error);
  // The budget does not apply to an answer that has begun: refusing it would lose a client's
  // tokens.
  if (live.carry_on || live.journal.AnyAccepted()) {
    CarryOn(live, error);
    return;
  }
  if (live.placement_retries >= options_.limits.max_placement_retries) return Fail(live, error);
  if (!budget_.TryTake() && !QUIRE_BUG(retry_budget_ignored)) {
    ++counters_.placement_retries_denied;
    return Fail(live, error);
  }
  const PlaceOutcome outcome =
      line_.Blocked(live.pool()) ? PlaceOutcome::kBusy : Place(live);  // as for a new request
  if (outcome == PlaceOutcome::kNobody) {
    budget_.GiveBack();
    return Fail(live, error);
  }
  ++live.placement_retries;
  ++counters_.placement_retries;
  if (outcome != PlaceOutcome::kPlaced) Wait(live, outcome);
}

bool Dispatcher::CarryOn(LiveDispatch& live, const ApiError& error) {
  QUIRE_CHECK(!live.running);
  const bool begun = live.journal.AnyAccepted();
  const bool too_long = live.journal.TotalOutputs() > kMaxResumedIds;
  const bool stalled = live.stalled_carry_ons >= options_.limits.max_stalled_carry_ons;
  const bool lost = begun && (!options_.carry_on || QUIRE_BUG(carry_on_skipped));
  if (stalled || too_long || lost) {
    Fail(live, error);
    return false;
  }
  ++live.stalled_carry_ons;
  ++counters_.carry_ons;
  live.carry_on = true;
  Wait(live, PlaceOutcome::kHeld);  // it takes its place among the resumed requests of its pool
  return true;
}

void Dispatcher::LoseAttemptsOf(WorkerIndex worker, AttemptEnd end) {
  const std::set<RequestNumber> numbers = at_[worker.value()].running;
  for (const RequestNumber number : numbers) {
    LiveDispatch* live = Find(number);
    if (live == nullptr || !live->running || live->worker != worker) continue;
    Abandon(*live, /*tell_worker=*/true, end);
    CarryOn(*live, NoWorkerError(live->request.model_name, live->journal.AnyAccepted()));
  }
  QUIRE_CHECK_MSG(at_[worker.value()].running.empty(), "a lost worker runs nothing");
}

void Dispatcher::CountNews(DeathNews news) {
  if (news == DeathNews::kDied) ++counters_.worker_deaths;
  if (news == DeathNews::kTakenBack) ++counters_.worker_deaths_taken_back;
}

void Dispatcher::CountLoss(WorkerIndex worker, bool stuck) {
  DeathLedger::Under under;
  const std::set<RequestNumber>& running = at_[worker.value()].running;
  for (const RequestNumber number : running) {
    const LiveDispatch& live = *live_.at(number);
    uint64_t& outputs = under[live.Prompt()];
    outputs = std::max(outputs, live.FurthestChoice());
  }
  if (stuck) {
    ledger_.Stuck(under, Now());
  } else {
    ledger_.Lost(worker, under, Now());
  }
  for (const RequestNumber number : running) {
    LiveDispatch& live = *live_.at(number);
    if (!live.holds_prompt) live.holds_prompt = ledger_.Hold(live.Prompt());
  }
  WithdrawCopies(under, worker);
}

void Dispatcher::WithdrawCopies(const DeathLedger::Under& under, WorkerIndex lost) {
  std::set<PromptKey> suspects;
  for (const auto& [prompt, outputs] : under) {
    if (IsSuspect(prompt)) suspects.insert(prompt);
  }
  if (suspects.empty() || QUIRE_BUG(suspects_run_together)) return;
  std::vector<std::pair<uint64_t, RequestNumber>>
      copies;  // with how many outputs they are behind the furthest
  for (const auto& [number, live] : live_) {
    if (!live->running || live->worker == lost || live->suspect_turn) continue;
    if (!suspects.contains(live->Prompt()) || !MayGoOnElsewhere(*live)) continue;
    copies.emplace_back(~live->FurthestChoice(), number);
  }
  std::sort(copies.begin(), copies.end());
  for (const auto& [lacks, number] : copies) {
    LiveDispatch* live = Find(number);
    if (live == nullptr || !live->running) continue;
    if (suspect_turns_.try_emplace(live->pool(), number).second) {
      live->suspect_turn = true;
      continue;
    }
    Abandon(*live, /*tell_worker=*/true, AttemptEnd::kWithdrawn);
    CarryOn(*live, NoWorkerError(live->request.model_name, live->journal.AnyAccepted()));
  }
}

// A request with outputs needs a worker that accepts them.
bool Dispatcher::MayGoOnElsewhere(const LiveDispatch& live) const {
  if (!live.journal.AnyAccepted()) return true;
  const std::vector<std::string>& offered = fleet_.worker(live.worker).hello.features;
  return options_.carry_on && live.journal.TotalOutputs() <= kMaxResumedIds &&
         std::find(offered.begin(), offered.end(), kFeatureResume) != offered.end();
}

// Ends all requests with a prompt under which too many workers have died.
void Dispatcher::Condemn(const std::vector<PromptKey>& prompts) {
  std::set<PromptKey> guilty;
  for (const PromptKey& prompt : prompts) {
    if (ledger_.Of(prompt).deaths >= options_.limits.max_worker_deaths) guilty.insert(prompt);
  }
  if (guilty.empty() || QUIRE_BUG(poison_tried_again)) return;
  std::vector<RequestNumber> numbers;
  for (const auto& [number, live] : live_) {
    if (!live->refused && guilty.contains(live->Prompt())) numbers.push_back(number);
  }
  for (const RequestNumber number : numbers) {
    LiveDispatch* live = Find(number);
    if (live == nullptr) continue;
    Abandon(*live, /*tell_worker=*/true, AttemptEnd::kFailed);
    ++counters_.requests_suspect;
    Fail(*live, SuspectError(options_.limits.max_worker_deaths));
  }
}

// ------------------------------------------------------------------------------------- the end

void Dispatcher::Abandon(LiveDispatch& live, bool tell_worker, AttemptEnd end) {
  auto report = EndAttempt(live, tell_worker, end);
  if (report) events_.Add(live.request.number, std::move(*report));
}

std::optional<AttemptReport> Dispatcher::EndAttempt(LiveDispatch& live, bool tell_worker,
                                                    AttemptEnd end) {
  if (!live.running) return std::nullopt;
  const RequestNumber number = live.request.number;
  if (!QUIRE_BUG(recompute_not_given_back)) StopPacing(live);
  QUIRE_CHECK(at_[live.worker.value()].running.erase(number) == 1);
  if (!QUIRE_BUG(counter_leaked_on_retry)) fleet_.AttemptEnded(live.worker, live.answered);
  live.running = false;
  live.ticket = {};  // the next attempt has more to look up
  if (live.suspect_turn && !QUIRE_BUG(turn_of_a_suspect_kept)) suspect_turns_.erase(live.pool());
  live.suspect_turn = false;
  if (tell_worker && LinkOf(live.worker).up()) {
    if (!QUIRE_BUG(cancel_not_sent)) {
      LinkOf(live.worker).SendCancel({{number, live.attempt}, false, 0});
      NoteUnseen(live.worker);
    }
  }
  live.report.end = end;
  live.report.over_at = Now();
  return live.report;
}

void Dispatcher::StopPacing(LiveDispatch& live) {
  if (live.recompute_tokens == 0) return;
  pacer_.Over(live.worker, std::exchange(live.recompute_tokens, 0));
}

void Dispatcher::Fail(LiveDispatch& live, const ApiError& error) {
  QUIRE_CHECK(!live.running);
  events_.Add(live.request.number, error);
  Forget(live);
}

void Dispatcher::Forget(LiveDispatch& live) {
  QUIRE_CHECK(!live.running);
  StopWaiting(live);
  if (live.holds_prompt) {
    if (live.journal.AllEnded()) ledger_.EndedWell(live.Prompt(), live.FurthestChoice());
    ledger_.Release(live.Prompt(), Now());
    counters_.suspect_prompts_forgotten = ledger_.forgotten();
  }
  QUIRE_CHECK(live_.erase(live.request.number) == 1);
}

}  // namespace quire
