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
//  4. Attempts before the first accepted output are bounded by max_placement_retries, later ones by
//     max_carry_ons; waiting for a worker is bounded by empty_pool_wait_ms.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/runtime/runtime.h"
#include "router/core/api.h"
#include "router/dispatch/attempt_report.h"
#include "router/dispatch/journal.h"
#include "router/dispatch/placement.h"
#include "router/dispatch/window.h"
#include "router/fleet/fleet.h"
#include "router/link/link.h"
#include "router/routing/policy.h"

namespace quire {

struct DispatchOptions {
  RouterInstance instance;
  const Policy* policy = nullptr;  // one of Policies()
  RouterLimits limits;
  LinkOptions link;      // target and worker are filled in
  bool carry_on = true;  // resume on another worker what has already produced output
};

struct DispatchRequest {
  RequestNumber number;  // unique in this router
  // Prompt, choices as they stand, sampling, names. The dispatcher fills in key, window and
  // remaining time.
  Submit submit;
  std::string model_name;        // for messages
  std::string session;           // of the client, for policies that keep one with its worker
  Micros deadline = 0;           // 0 is none
  bool router_is_taker = false;  // the answer is collected here: accepted outputs count as taken
};

// For metrics; all count events since start.
struct DispatchCounters {
  uint64_t attempts = 0;
  uint64_t tokens_accepted = 0;
  uint64_t outputs_stale = 0;  // of attempts that are not current
  uint64_t outputs_duplicate = 0;
  uint64_t outputs_late = 0;     // of choices that have ended
  uint64_t attempts_broken = 0;  // by a gap, an overrun or an unknown choice
  uint64_t placement_retries = 0;
  uint64_t carry_ons = 0;
  uint64_t links_lost = 0;
};

class DispatchListener {
 public:
  virtual ~DispatchListener() = default;
  // A worker admitted the current attempt; its cache served so many tokens of prompt and outputs.
  virtual void OnAdmitted(RequestNumber request, const WorkerRecord& worker,
                          uint32_t cached_tokens) = 0;
  // Logprobs of the prompt: each position once, in order, all before the first output.
  virtual void OnPromptLogprobs(RequestNumber /*request*/, const PromptLogprobs& /*part*/) {}
  virtual void OnOutput(RequestNumber request, const Output& output) = 0;
  // The reason is STOP or LENGTH.
  virtual void OnChoiceOver(RequestNumber request, const Ended& ended) = 0;
  virtual void OnRequestFailed(RequestNumber request, const ApiError& error) = 0;
  // An attempt is over, whatever becomes of its request; also inside Cancel and FinishChoice. The
  // only callback that must not call anything here.
  virtual void OnAttemptOver(RequestNumber /*request*/, const AttemptReport& /*report*/) {}
  // A worker attached, left, or changed its phase.
  virtual void OnFleetChanged(WorkerIndex worker) = 0;
  // A worker may have room now that had none: ask RoomFor again. Carry-ons have been placed before.
  virtual void OnRoom() {}
};

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

  // Places the request now or as soon as a worker can take it. Nothing is called back inside this
  // call.
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
  size_t LiveRequests() const { return live_.size(); }
  // Whether a new request would be placed at once. What finds no room waits with the caller, who
  // knows whose turn it is; Start is for requests that find some, or whose pool is empty.
  Room RoomFor(const std::string& model_id, const RoomNeed& need) const;
  // Places what waits for a worker; call when the fleet may have one now.
  void TryWaiting();
  void CheckInvariants() const;

 private:
  struct Live {
    Live(DispatchRequest request, uint32_t window_size);
    DispatchRequest request;
    Journal journal;
    std::vector<Window> windows;  // per choice
    Attempt attempt;
    // A beam search is told at its end, whatever its taker does.
    bool Windowed() const { return request.submit.sampling.beam_width == 0; }
    bool running = false;   // an attempt is with a worker
    bool answered = false;  // the worker admitted it
    WorkerIndex worker;     // of the running attempt
    std::vector<WorkerIndex> excluded;
    uint32_t placement_retries = 0;
    uint32_t carry_ons = 0;
    TimerId wait_timer = 0;
    bool waiting = false;
    PlacementTicket ticket;
    AttemptReport report;  // of the running attempt, or the last one
  };

  void OnLinkUp(WorkerIndex worker, const WorkerHello& hello) override;
  void OnStep(WorkerIndex worker, const StepFrame& step) override;
  void OnDraining(WorkerIndex worker, uint64_t remaining_ms) override;
  void OnSnapshotChunk(WorkerIndex worker, const SnapshotChunk& chunk) override;
  void OnLinkDown(WorkerIndex worker, LinkDownReason reason, const absl::Status& why) override;

  // The request whose current attempt this is; nullptr for every other one.
  Live* FindCurrent(WorkerIndex worker, const AttemptKey& key);
  void HandleAdmitted(WorkerIndex worker, const Admitted& admitted);
  void HandlePrompt(WorkerIndex worker, const PromptLogprobs& part);
  void HandleOutput(WorkerIndex worker, const Output& output);
  void HandleBroken(Live& live);
  void HandleEnded(WorkerIndex worker, const Ended& ended);
  void HandleRefused(WorkerIndex worker, const Refused& refused);

  bool Place(Live& live);
  void Send(Live& live, WorkerIndex worker);
  void Wait(Live& live);
  void StopWaiting(Live& live);
  // The attempt is over, the request is not: starts the next attempt, or fails with `error`.
  // Without `may_wait` it fails when no worker can take it at once.
  void NextAttempt(Live& live, const ApiError& error, bool may_wait);
  void LoseAttemptsOf(WorkerIndex worker, AttemptEnd end);
  // Detaches the running attempt, telling the worker if it still listens.
  void Abandon(Live& live, AttemptEnd end, bool tell_worker);
  void Fail(Live& live, const ApiError& error);
  void Forget(Live& live);
  void Answered(Live& live);
  Link& LinkOf(WorkerIndex worker);
  FleetView ViewOf(const std::string& model_id) const;
  void AskForSnapshots();
  Window& WindowOf(Live& live, uint32_t choice);

  const DispatchOptions options_;
  Dialer& dialer_;
  Executor& executor_;
  Rng& rng_;
  DispatchListener& listener_;
  Fleet fleet_;
  Placement placement_;
  std::vector<std::unique_ptr<Link>> links_;      // by WorkerIndex; nullptr: it is gone
  std::vector<std::set<RequestNumber>> running_;  // by WorkerIndex: whose attempts it has
  std::map<RequestNumber, std::unique_ptr<Live>> live_;
  std::set<RequestNumber> waiting_;  // for a worker, the oldest first
  DispatchCounters counters_;
};

}  // namespace quire
