// Requests become attempts: sends each to a worker, takes its outputs exactly once, and starts the
// next attempt when a worker refuses, leaves or dies.
//
// Owner: the pipeline, on the router's executor; every call and every callback happens there. The
// listener outlives the dispatcher; inside a callback it may call anything here.
//  1. An output is handed on only if it comes from the current attempt and its first_index equals
//     what has been accepted of that choice; that alone makes delivery exactly once.
//  2. A request has at most one attempt at a time, each with a higher number than the one before.
//  3. A request that was started is forgotten after its last choice ended, after OnRequestFailed,
//     or by Cancel; nothing is called back for it from then on.
//  4. A second attempt is a placement retry (refused, or failed before anything was accepted),
//     which the request's own limit and the router's budget bound; or a carry-on (its worker was
//     lost, stuck or drained, or its answer had begun), which goes before new requests and is paced
//     by recompute in flight. Waiting for anybody at all is bounded by empty_pool_wait_ms.
//  5. A request with a prompt under which workers may have died max_worker_deaths - 1 times runs as
//     the only one of its kind in its pool; at max_worker_deaths all with that prompt end. From the
//     first of them on no worker gets it while as many have it as it may still cost.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/number_table.h"
#include "common/runtime/runtime.h"
#include "router/core/api.h"
#include "router/dispatch/carry_on_pacer.h"
#include "router/dispatch/death_ledger.h"
#include "router/dispatch/dispatch_types.h"
#include "router/dispatch/live_dispatch.h"
#include "router/dispatch/placement.h"
#include "router/dispatch/retry_budget.h"
#include "router/dispatch/waiting_line.h"
#include "router/fleet/fleet.h"
#include "router/link/link.h"

namespace quire {

// A carry-on that was turned down by everybody is offered again after this.
inline constexpr Micros kTurnedDownPause = 100 * kMicrosPerMilli;
// A request that would be suspect if open losses proved to be deaths is not placed for so long.
// Longer than the longest pause between two dials, which bring the verdict.
inline constexpr Micros kDeathVerdictWait = 6 * kMicrosPerSecond;

class Dispatcher final : private LinkListener {
 public:
  // `dialer`, `executor`, `rng` and `listener` outlive the dispatcher. OnFleetChanged also tells
  // why a worker is refused.
  Dispatcher(DispatchOptions options, Dialer& dialer, Executor& executor, Rng& rng,
             DispatchListener& listener);
  ~Dispatcher() override;

  // Dials the worker from now on. The errors of Fleet::AddWorker.
  absl::Status AddWorker(const std::string& target);
  // Ends its Attach and forgets it. Needs a worker without attempts; not inside a callback.
  void RemoveWorker(WorkerIndex worker);

  // Places the request now or as soon as a worker can take it. Nothing but notes for records is
  // called back inside this call.
  void Start(DispatchRequest request);
  // Frees everything, calls nothing back. Unknown numbers are ignored: the request may just have
  // ended.
  void Cancel(RequestNumber request);
  // Ends a choice at a stop string, or at a limit (LENGTH), with the outputs that count.
  void FinishChoice(RequestNumber request, uint32_t choice, EndReason reason,
                    uint64_t output_count);
  // The client has taken the outputs of this choice below `index`. Unknown requests are ignored.
  void Taken(RequestNumber request, uint32_t choice, uint64_t index);

  Fleet& fleet() { return fleet_; }
  const Fleet& fleet() const { return fleet_; }
  const DispatchCounters& counters() const { return counters_; }
  const Placement& placement() const { return placement_; }
  const DeathLedger& deaths() const { return ledger_; }
  size_t LiveRequests() const { return live_.size(); }
  // nullptr: unknown. Valid until anything is called here.
  const LiveDispatch* Peek(RequestNumber request) const {
    const auto it = live_.find(request);
    return it == live_.end() ? nullptr : it->second.get();
  }
  size_t WaitingRequests() const { return line_.size(); }
  // Whether a new request would be placed at once. What finds no room waits with the caller, who
  // knows whose turn it is; Start is for requests that find some, or whose pool is empty.
  Room RoomFor(const std::string& model_id, const RoomNeed& need) const;
  // Places what waits for a worker; call when the fleet may have one now.
  void TryWaiting();
  void CheckInvariants() const;

 private:
  absl::Status CheckHello(WorkerIndex worker, const WorkerHello& hello) override;
  bool MayDial(WorkerIndex worker) override { return fleet_.MayDial(worker, Now()); }
  void OnLinkUp(WorkerIndex worker, const WorkerHello& hello) override;
  void OnStep(WorkerIndex worker, const StepFrame& step) override;
  void OnDraining(WorkerIndex worker, uint64_t remaining_ms) override;
  void OnSnapshotChunk(WorkerIndex worker, const SnapshotChunk& chunk) override;
  bool OnSilent(WorkerIndex worker) override;
  bool OnDeaf(WorkerIndex worker) override { return fleet_.MayGiveUp(worker); }
  void OnLinkDown(WorkerIndex worker, LinkDownReason reason, const absl::Status& why) override;

  // What workers say of attempts (dispatcher_frames.cc).
  // The request whose current attempt this is; nullptr for every other one.
  LiveDispatch* FindCurrent(WorkerIndex worker, const AttemptKey& key);
  void HandleAdmitted(WorkerIndex worker, const Admitted& admitted);
  void HandlePrompt(WorkerIndex worker, const PromptLogprobs& part);
  void HandleOutput(WorkerIndex worker, const Output& output);
  void HandleBroken(LiveDispatch& live);
  void HandleEnded(WorkerIndex worker, const Ended& ended);
  void HandleRefused(WorkerIndex worker, const Refused& refused);
  void Answered(LiveDispatch& live);

  // Placing (dispatcher.cc).
  PlaceOutcome Place(LiveDispatch& live);
  Placement::Placed ChooseFor(LiveDispatch& live, const std::vector<WorkerIndex>& spared,
                              PlacementTicket& ticket);
  std::vector<WorkerIndex> SparedFrom(const LiveDispatch& live) const;
  bool Held(const LiveDispatch& live) const;
  bool IsSuspect(const LiveDispatch& live) const;
  bool IsSuspect(const PromptKey& prompt) const;
  void Send(LiveDispatch& live, const RouteChoice& choice);
  void Wait(LiveDispatch& live, PlaceOutcome outcome);
  void ArmWait(LiveDispatch& live, Micros due);
  void WaitOver(RequestNumber request, Micros due);
  void StopWaiting(LiveDispatch& live);
  bool TryPool(const std::string& pool);

  // The next attempt, or the end (dispatcher_failover.cc).
  void RetryPlacement(LiveDispatch& live, const ApiError& error);
  // False: the request has failed.
  bool CarryOn(LiveDispatch& live, const ApiError& error);
  void LoseAttemptsOf(WorkerIndex worker, AttemptEnd end);
  void MoveAway(WorkerIndex worker);
  // The prompts that run at a worker, which from now on the ledger of deaths knows.
  void CountLoss(WorkerIndex worker, bool stuck);
  // Of those that run elsewhere with a prompt of these that is suspect now, one goes on in each
  // pool; the others might kill their workers too, and wait for their turn.
  void WithdrawCopies(const DeathLedger::Under& under, WorkerIndex lost);
  bool MayGoOnElsewhere(const LiveDispatch& live) const;
  void Condemn(const std::vector<PromptKey>& prompts);
  void CountNews(DeathNews news);
  // Detaches the running attempt, telling the worker if it still listens.
  void Abandon(LiveDispatch& live, bool tell_worker, AttemptEnd end);
  void StopPacing(LiveDispatch& live);
  void Fail(LiveDispatch& live, const ApiError& error);
  void Forget(LiveDispatch& live);

  LiveDispatch* Find(RequestNumber request);
  Link& LinkOf(WorkerIndex worker);
  Micros Now() const { return executor_.clock().Now(); }
  // After each word to or from a worker that changes what is on its way to it.
  void NoteUnseen(WorkerIndex worker);
  void AskForSnapshots();

  const DispatchOptions options_;
  Dialer& dialer_;
  Executor& executor_;
  Rng& rng_;
  DispatchListener& listener_;
  Fleet fleet_;
  Placement placement_;
  RetryBudget budget_;
  CarryOnPacer pacer_;
  DeathLedger ledger_;
  WaitingLine line_;
  FleetView view_;  // of the decision at hand; its memory is used again
  struct AtWorker {
    std::unique_ptr<Link> link;       // nullptr: it is gone
    std::set<RequestNumber> running;  // whose attempts it has
    TimerId move_timer = 0;           // it drains: its attempts move away from then on
    bool moving = false;
  };
  std::vector<AtWorker> at_;  // by WorkerIndex
  NumberTable<RequestNumber, std::unique_ptr<LiveDispatch>> live_;
  std::map<std::string, RequestNumber> suspect_turns_;  // by pool: the suspect that runs
  DispatchCounters counters_;
};

}  // namespace quire
