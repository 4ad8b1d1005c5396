// Turns requests into attempts: sends each to a worker, takes its outputs exactly once, and starts
// the next attempt when a worker refuses, leaves or dies.
//
// Owner: the pipeline, on the router's executor; every call happens there. What happens comes back
// as events, which the pipeline drains; between two of them it may call anything here, and what it
// does counts before the next part of the same frame.
//  1. An output is passed on only if it comes from the current attempt and its first_index equals
//     the number of accepted outputs of that choice; this alone makes delivery exactly once.
//  2. A request has at most one attempt at a time, each with a higher number than the one before.
//  3. A request that was started is forgotten after its last choice ended, after RequestFailed, or
//     by Cancel; no event names it from then on, except a RequestFailed that waited meanwhile.
//  4. A second attempt is either a placement retry or a resumption. A placement retry (refused, or
//     failed before anything was accepted) is bounded by the request's own limit and the router's
//     budget. A resumption (its worker was lost, stuck or drained, or its answer had begun) goes
//     before new requests and is paced by recompute in flight. Waiting for any worker at all is
//     bounded by empty_pool_wait_ms.
//  5. A request whose prompt may have killed max_worker_deaths - 1 workers runs as the only one of
//     its kind in its pool; at max_worker_deaths all requests with that prompt end. From the first
//     death on, no further worker gets the prompt while as many workers run it as it may still
//     kill.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/number_table.h"
#include "common/runtime/runtime.h"
#include "router/core/api.h"
#include "router/dispatch/adapter_orders.h"
#include "router/dispatch/carry_on_pacer.h"
#include "router/dispatch/death_ledger.h"
#include "router/dispatch/dispatch_types.h"
#include "router/dispatch/event_queue.h"
#include "router/dispatch/live_dispatch.h"
#include "router/dispatch/placement.h"
#include "router/dispatch/retry_budget.h"
#include "router/dispatch/waiting_line.h"
#include "router/fleet/fleet.h"
#include "router/link/link.h"

namespace quire {

class Dispatcher final : private LinkListener {
 public:
  // `dialer`, `executor` and `rng` outlive the dispatcher. `wake` is called when there are events,
  // and drains all of them before it returns; never inside Start, Cancel, FinishChoice and Taken.
  Dispatcher(DispatchOptions options, Dialer& dialer, Executor& executor, Rng& rng,
             std::function<void()> wake);
  ~Dispatcher() override;

  // The next thing that happened; empty: nothing more.
  std::optional<DispatchEvent> NextEvent();

  // Dials the worker from now on. Fails as Fleet::AddWorker does.
  absl::Status AddWorker(const std::string& target);
  // Ends its Attach and forgets it. The worker must have no attempts; do not call this while events
  // are drained.
  void RemoveWorker(WorkerIndex worker);

  // Places the request now or as soon as a worker can take it.
  void Start(DispatchRequest request);
  // Frees everything; returns the report of the attempt that this ends. Unknown numbers are
  // ignored.
  std::optional<AttemptReport> Cancel(RequestNumber request);
  // Ends a choice at a stop string, or at a limit (LENGTH), with this number of outputs. The
  // attempt's report: this has ended it.
  std::optional<AttemptReport> FinishChoice(RequestNumber request, uint32_t choice,
                                            EndReason reason, uint64_t output_count);
  // The client has taken the outputs of this choice below `index`. Unknown requests are ignored.
  void Taken(RequestNumber request, uint32_t choice, uint64_t index);

  Fleet& fleet() { return fleet_; }
  const Fleet& fleet() const { return fleet_; }
  const DispatchCounters& counters() const { return counters_; }
  const Placement& placement() const { return placement_; }
  const DeathLedger& deaths() const { return ledger_; }
  AdapterOrders& adapter_orders() { return adapter_orders_; }
  size_t LiveRequests() const { return live_.size(); }
  // nullptr: unknown. Valid until the next call here.
  const LiveDispatch* Peek(RequestNumber request) const;
  size_t WaitingRequests() const { return line_.size(); }
  // Whether a new request would be placed at once. A request that finds no room waits with the
  // caller, which decides whose turn it is; Start is for requests that find room, or whose pool is
  // empty.
  Room RoomFor(const std::string& model_id, const RoomNeed& need) const;
  // Places requests that wait for a worker; call it when the fleet may have one now.
  void TryWaiting();
  void CheckInvariants() const;

 private:
  absl::Status CheckHello(WorkerIndex worker, const WorkerHello& hello) override;
  bool MayDial(WorkerIndex worker) override { return fleet_.MayDial(worker, Now()); }
  void OnLinkUp(WorkerIndex worker, const WorkerHello& hello) override;
  void OnStep(WorkerIndex worker, StepFrame& step) override;
  void OnDraining(WorkerIndex worker, uint64_t remaining_ms) override;
  void OnSnapshotChunk(WorkerIndex worker, const SnapshotChunk& chunk) override;
  void OnAdapters(WorkerIndex worker, const AdaptersChanged& changed) override;
  void OnAdapterResult(WorkerIndex worker, const AdapterResult& result) override;
  bool OnSilent(WorkerIndex worker) override;
  bool OnDeaf(WorkerIndex worker) override { return fleet_.MayGiveUp(worker); }
  void OnLinkDown(WorkerIndex worker, LinkDownReason reason, const absl::Status& why) override;

  // The next part of what is under way, which may add events. False: nothing is under way.
  bool Advance();

  // Workers' frames, item by item (dispatcher_frames.cc).
  void RelayNext();
  void EndRelay();
  // The request whose current attempt this is; nullptr for every other attempt.
  LiveDispatch* FindCurrent(WorkerIndex worker, const AttemptKey& key);
  void HandleAdmitted(WorkerIndex worker, const Admitted& admitted);
  void HandlePrompt(WorkerIndex worker, PromptLogprobs& part);
  void HandleOutput(WorkerIndex worker, Output& output);
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

  // The next attempt, or the end of the request (dispatcher_failover.cc).
  void RetryPlacement(LiveDispatch& live, const ApiError& error);
  // False: the request has failed.
  bool CarryOn(LiveDispatch& live, const ApiError& error);
  void LoseAttemptsOf(WorkerIndex worker, AttemptEnd end);
  void MoveAway(WorkerIndex worker);
  // The prompts that run at a worker; the ledger of deaths knows them from now on.
  void CountLoss(WorkerIndex worker, bool stuck);
  // When prompts that run elsewhere have become suspect, one request with each continues in each
  // pool; the others wait for their turn.
  void WithdrawCopies(const DeathLedger::Under& under, WorkerIndex lost);
  bool MayGoOnElsewhere(const LiveDispatch& live) const;
  void Condemn(const std::vector<PromptKey>& prompts);
  void CountNews(DeathNews news);
  // Detaches the running attempt, if there is one, and informs the worker if its link is up.
  std::optional<AttemptReport> EndAttempt(LiveDispatch& live, bool tell_worker, AttemptEnd end);
  // The same; its report becomes an event.
  void Abandon(LiveDispatch& live, bool tell_worker, AttemptEnd end);
  void StopPacing(LiveDispatch& live);
  void Fail(LiveDispatch& live, const ApiError& error);
  void Forget(LiveDispatch& live);

  LiveDispatch* Find(RequestNumber request);
  Link& LinkOf(WorkerIndex worker);
  Micros Now() const { return executor_.clock().Now(); }
  // Called after each frame to or from a worker that changes what is in flight to it.
  void NoteUnseen(WorkerIndex worker);
  void AskForSnapshots();

  const DispatchOptions options_;
  Dialer& dialer_;
  Executor& executor_;
  Rng& rng_;
  Fleet fleet_;
  Placement placement_;
  RetryBudget budget_;
  CarryOnPacer pacer_;
  DeathLedger ledger_;
  WaitingLine line_;
  FleetView view_;  // of the current decision; its memory is reused
  struct AtWorker {
    std::unique_ptr<Link> link;       // nullptr: it is gone
    std::set<RequestNumber> running;  // the worker whose attempts it has
    TimerId move_timer = 0;           // it drains: its attempts move away from then on
    bool moving = false;
  };
  std::vector<AtWorker> at_;  // by WorkerIndex
  NumberTable<RequestNumber, std::unique_ptr<LiveDispatch>> live_;
  std::map<std::string, RequestNumber> suspect_turns_;  // by pool: the suspect that runs
  DispatchCounters counters_;
  AdapterOrders adapter_orders_;
  EventQueue events_;
  Relay relay_;
  Due due_;
};

}  // namespace quire
