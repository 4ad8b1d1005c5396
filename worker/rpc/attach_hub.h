// All Attaches of a worker: the session of each router, and the path between sessions and the
// engine.
//
// Owner: main (or the simulation). Everything runs on the rpc executor.
//  1. A router instance has at most one session. A newer attach number ends the older session, an
//     older or equal one is refused, also after the newer has ended.
//  2. The engine gets exactly one RouterLost for every accepted Attach that ends, before any Submit
//     of the same router's next Attach: no command of a router is pushed while its RouterLost is
//     pending.
//  3. When the engine has lost its device, every Attach ends with an explanation, and none is
//     accepted until the device has computed a token again; then routers are greeted with another
//     epoch.
//  4. Commands that must arrive (RouterLost, Drain, grammars) are kept and retried; others may be
//     refused.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "common/log/log.h"
#include "common/runtime/timer.h"
#include "worker/constrain/constraint_compiler.h"
#include "worker/engine/engine_driver.h"
#include "worker/rpc/adapter_control.h"
#include "worker/rpc/attach_session.h"

namespace quire {

inline constexpr size_t kMaxRouters = 256;             // attached at once
inline constexpr size_t kMaxSessions = 512;            // with those that greet or leave
inline constexpr size_t kMaxRememberedRouters = 4096;  // attach numbers of routers that have gone
inline constexpr Micros kOwedRetryInterval = 20 * kMicrosPerMilli;

class AttachHub final : private SessionHost {
 public:
  // All of them outlive the hub. `worker` is the Hello that every router gets.
  AttachHub(WorkerHello worker, Executor& executor, EngineDriver& engine, Logger& log,
            RpcMetrics& metrics);
  ~AttachHub() override;

  // A router has opened a stream.
  void Accept(std::unique_ptr<FrameStream> stream);

  // The driver has outputs: passes them to the sessions. Posted by the driver's callback.
  void OnEngineOutput();

  // Called with every record of an ended attempt, whether or not its router is still attached. Must
  // not wait. May be absent.
  using RecordTaker = std::function<void(const AttemptRecord&)>;
  void SetRecordTaker(RecordTaker taker) { on_record_ = std::move(taker); }

  // Called with every refused Submit. Must not wait. May be absent.
  using RefusalTaker = std::function<void(RouterInstance, const Refused&)>;
  void SetRefusalTaker(RefusalTaker taker) { on_refused_ = std::move(taker); }

  // Called with all outputs of the engine, before they go to their routers. Must not wait. May be
  // absent.
  using OutputWatcher = std::function<void(const EngineOutput&)>;
  void WatchOutputs(OutputWatcher watcher) { on_output_ = std::move(watcher); }

  // Cache events that wait for one router hold at most this many hashes (and events). Before the
  // first Accept.
  void LimitUnsentHashes(size_t hashes) { max_unsent_hashes_ = hashes; }

  // What compiles the constraints of Submits; outlives the hub. Before the first Accept; without it
  // the Hello must not list the feature.
  void SetCompiler(ConstraintCompiler* compiler) { compiler_ = compiler; }

  // Who carries out orders about adapters; outlives the hub. Before the first Accept; without it
  // the Hello must not list the feature.
  void SetAdapterControl(AdapterControl* control) { adapters_ = control; }
  // What the worker holds from now on; the routers hear it.
  void ChangeAdapters(AdaptersChanged changed);

  // Makes the epoch that follows a lost device; called when the device is back. Before the first
  // Accept; a hub without this function aborts when a device is lost.
  void SetEpochSource(std::function<Epoch()> source) { next_epoch_ = std::move(source); }

  // Accepts no new work from here on; waiting work is returned. Routers are asked to move running
  // work away at `move_at`; the rest continues until `end_at` and is then ended as DRAINED. `done`
  // runs once: with true when the engine had nothing left, with false when it had not reported so
  // kDrainGrace after the end.
  void Drain(Micros move_at, Micros end_at, std::function<void(bool)> done);
  // Both at once.
  void Drain(Micros deadline, std::function<void(bool)> done) {
    Drain(deadline, deadline, std::move(done));
  }

  // Ends all sessions in order, with a last frame to their routers; `done` runs when they are gone.
  void Close(std::string_view parting, std::function<void()> done);

  size_t attached_count() const { return by_router_.size(); }
  const Load& load() const { return load_; }
  uint64_t epoch() const { return worker_.epoch.value(); }

 private:
  AttachVerdict OnHello(AttachSession& session) override;
  Refused Compile(SubmitCommand& command) override;
  void StopCompiling(uint64_t number) override;
  bool Push(EngineCommand&& command) override;
  void OnAdapterOrder(AttachSession& session, const AdapterOrder& order) override;
  const std::vector<std::string>& held_adapters() const override { return held_adapters_; }
  void RanLate(Micros due) override;
  StepFrame Pulse() const override;
  bool draining() const override { return draining_; }
  uint64_t drain_remaining_ms() const override;
  void OnRefused(RouterInstance router, const Refused& refused) override {
    if (on_refused_) on_refused_(router, refused);
  }
  void OnSessionEnded(AttachSession& session, const absl::Status& why) override;
  void OnSessionGone(AttachSession& session) override;

  Micros Now() const { return executor_.clock().Now(); }
  WorkerState StateNow() const;
  // How long the step has run, less the time that this process was held up meanwhile; 0: none runs.
  Micros StepAge() const;
  void Remember(RouterInstance router, uint64_t attach_number);
  void Owe(EngineCommand command);
  void PayOwed();
  void Route(EngineOutput& output);
  void RouteCache(const EngineOutput& output);
  void CheckDrained();
  void LoseDevice(uint64_t devices_lost);
  void RegainDevice();
  void FlushAll();
  void EndAll(const absl::Status& why, std::string_view parting);

  WorkerHello worker_;
  Executor& executor_;
  EngineDriver& engine_;
  Logger& log_;
  RpcMetrics& metrics_;
  ConstraintCompiler* compiler_ = nullptr;
  AdapterControl* adapters_ = nullptr;
  std::vector<std::string> held_adapters_;  // digests without a name

  size_t max_unsent_hashes_ = kMaxUnsentHashes;
  uint64_t last_session_ = 0;
  std::map<uint64_t, std::unique_ptr<AttachSession>> sessions_;  // by id
  std::map<RouterInstance, AttachSession*> by_router_;
  std::map<RouterInstance, uint64_t> newest_attach_;
  std::deque<RouterInstance> remembered_;  // keys of newest_attach_, oldest first
  std::vector<EngineOutput>
      outputs_;                     // from the engine; returned with the next ones that are taken
  std::deque<EngineCommand> owed_;  // at most two per session, a grammar per attempt, the Drain
  Timer owed_timer_{executor_};
  // For the step that began at late_step_: how much of it this process was held up, as known until
  // late_until_.
  Micros late_step_ = 0;
  Micros late_ = 0;
  Micros late_until_ = 0;
  Load load_;
  uint64_t event_seq_ = 0;
  bool device_lost_ = false;  // no router is accepted
  uint64_t devices_lost_ = 0;
  std::function<Epoch()> next_epoch_;
  bool draining_ = false;
  bool engine_drained_ = false;
  Micros drain_move_at_ = 0;
  Timer drain_timer_{executor_};
  std::function<void(bool)> on_drained_;
  std::function<void()> on_closed_;
  RefusalTaker on_refused_;
  RecordTaker on_record_;
  OutputWatcher on_output_;
  bool closed_ = false;
  std::shared_ptr<bool>
      alive_;  // false once the hub is gone: work that it posted then does nothing
};

inline constexpr Micros kDrainGrace = 5 * kMicrosPerSecond;

}  // namespace quire
