// One Attach: the conversation with one router over one frame stream, as a state machine.
//
// Owner: AttachHub; everything runs on the rpc executor. Never waits for the engine: commands are
// pushed into a bounded queue, and those that don't fit are refused.
//  1. The first frame is the Hello; the reply is a Hello or AttachRefused. Every later frame comes
//     from the router that sent the Hello.
//  2. A frame leaves at least every kFrameIntervalMs, busy or idle, unless the stream is blocked.
//  3. An attempt that the engine got is in live_ until its terminal output (Ended with last_choice,
//     Refused) passes; outputs of other attempts belong to an older Attach and are dropped.
//  4. Outputs are never dropped: more than kMaxUnsentBytes of them ends the Attach. Cache events
//     are dropped past max_unsent_hashes, and the next frame says so.
//  5. Of parts of Submits at most kMaxAssembling × max_model_len token ids are held.
//  6. A router silent for kRouterSilenceMs loses its Attach; time by which this process's own timer
//     ran late is not counted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/runtime/timer.h"
#include "common/wire/router_frames.h"
#include "common/wire/values.h"
#include "common/wire/worker_frames.h"
#include "worker/core/engine_io.h"
#include "worker/rpc/rpc_metrics.h"

namespace quire {

inline constexpr size_t kMaxUnsentBytes = 8u << 20;
inline constexpr size_t kMaxUnsentHashes = 65536;
inline constexpr size_t kMaxAssembling = 16;
inline constexpr size_t kMaxLiveAttempts = 8192;
inline constexpr Micros kPulseInterval = 150 * kMicrosPerMilli;  // leaves room below the 200 ms
// For a stream that does not report that it has closed.
inline constexpr Micros kCloseGrace = 2 * kMicrosPerSecond;
inline constexpr uint32_t kQueueFullRetryMs = 1000;

class AttachSession;

// Why a Hello is refused; an empty message means that it is accepted.
struct AttachVerdict {
  std::string message;
  bool fenced = false;
};

// What a session needs of its hub.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  // OK makes this session the session of its router.
  virtual AttachVerdict OnHello(AttachSession& session) = 0;
  // Of a Submit with a constraint: fills in its grammar, or the number of what compiles it. A
  // refusal with a code: neither.
  virtual Refused Compile(SubmitCommand& command) = 0;
  // The attempt with that number waits no longer; others are ignored.
  virtual void StopCompiling(uint64_t number) = 0;
  // False: there is no room, and the command is unchanged.
  virtual bool Push(EngineCommand&& command) = 0;
  // The session hears the result.
  virtual void OnAdapterOrder(AttachSession& session, const AdapterOrder& order) = 0;
  // Digests that are held and have no name: AdaptersChanged::held.
  virtual const std::vector<std::string>& held_adapters() const = 0;
  // A timer that was due then runs only now: this process was held up.
  virtual void RanLate(Micros due) = 0;
  // Current load, state, ages and event_seq; the lists are empty.
  virtual StepFrame Pulse() const = 0;
  virtual bool draining() const = 0;
  virtual uint64_t drain_remaining_ms() const = 0;
  // A Submit of that router was refused, by the engine or by the session itself.
  virtual void OnRefused(RouterInstance router, const Refused& refused) = 0;
  // Called once, after an accepted Hello: the router is lost. The session still exists to send its
  // last frame.
  virtual void OnSessionEnded(AttachSession& session, const absl::Status& why) = 0;
  // Called once, last: the session is to be destroyed, but not within this call.
  virtual void OnSessionGone(AttachSession& session) = 0;
};

// What all sessions of a hub share; outlives them.
struct SessionContext {
  const WorkerHello& worker;  // the Hello that every router gets
  Executor& executor;
  SessionHost& host;
  RpcMetrics& metrics;
  size_t max_unsent_hashes = kMaxUnsentHashes;
};

class AttachSession final : public FrameStream::Receiver {
 public:
  AttachSession(uint64_t id, std::unique_ptr<FrameStream> stream, const SessionContext& context);

  void Start();
  uint64_t id() const { return id_; }
  const RouterHello& router() const { return router_; }
  bool attached() const { return state_ == State::kAttached; }

  // The engine's output for this router. Takes everything except the outputs, whose memory the
  // engine reuses; outputs of attempts that do not belong to this Attach are dropped from it.
  void Deliver(RouterOutput& output);
  // Cache events with numbers from `first_event_seq` on.
  void DeliverEvents(std::span<const CacheEvents> events, uint64_t first_event_seq);
  // Events have been numbered that were not kept: the router learns that it lacks some.
  void EventsMissed();
  void DeliverSnapshot(const SnapshotPart& part);
  // Writes what was delivered as one step, unless the stream is blocked.
  void Flush();
  void TellDraining();
  // The worker's adapters have changed.
  void TellAdapters();
  void Tell(const AdapterResult& result);

  // Ends the Attach: a non-empty `parting` is sent in an AttachRefused frame first.
  void End(const absl::Status& why, std::string_view parting, bool fenced);

  void OnFrame(std::string_view frame) override;
  void OnClosed(const absl::Status& status) override;
  void OnWritable() override;

 private:
  enum class State { kAwaitingHello, kAttached, kClosing, kGone };
  struct Live {
    uint32_t choices = 1;
    uint64_t compiling = 0;  // the number of its constraint, while it compiled
  };
  struct Assembly {
    SubmitCommand command;
    std::vector<TokenId> prompt_ids;  // so far
    uint32_t parts = 0;
    uint32_t next_part = 0;
    std::map<uint32_t, uint64_t> grants;  // by choice; reported after the Submit
  };

  Micros Now() const { return executor_.clock().Now(); }
  void Handle(RouterMessage message);
  void Handle(RouterHello hello);
  void Handle(SubmitFrame frame);
  void Handle(BadSubmit bad);
  void Handle(SubmitPart part);
  void Handle(const Cancel& cancel);
  void Handle(const Finish& finish);
  void Handle(const Grant& grant);
  void Handle(const SnapshotRequest& request);
  void Handle(const Heartbeat& heartbeat);
  void Handle(const AdapterOrder& order);

  // False, and the Attach has ended, when the number is out of order.
  bool TakeSubmitNumber(uint64_t number);
  // Refused with kUnspecified when the Submit may go to the engine.
  Refused CheckSubmit(const Submit& submit) const;
  void Submitted(SubmitCommand command);
  void Assembled(const AttemptKey& key);
  void EndAssembling(const AttemptKey& key, uint32_t choice, bool one_choice, EndReason reason);
  // True when the attempt is live and has this choice; an unknown choice ends the Attach.
  void Forget(const AttemptKey& key);
  bool FindLive(const AttemptKey& key, uint32_t choice, std::string_view what);
  void PushOrEnd(EngineCommand command);
  void Refuse(Refused refused);
  void ProtocolError(const std::string& message);
  void AddToBacklog(RouterOutput& output);
  void WriteStep();
  void TellPartsSent();
  void WriteAdapters();
  void Tick();
  void ArmTick(Micros due);
  void Gone();

  const uint64_t id_;  // in its hub
  std::unique_ptr<FrameStream> stream_;
  const WorkerHello& worker_;
  Executor& executor_;
  SessionHost& host_;
  RpcMetrics& metrics_;
  const size_t max_unsent_hashes_;
  State state_ = State::kAwaitingHello;
  RouterHello router_;
  Timer timer_{executor_};
  Micros last_received_ = 0;
  Micros last_sent_ = 0;
  bool writable_ = true;
  StepFrame backlog_;  // its lists wait to be sent
  size_t backlog_bytes_ = 0;
  size_t backlog_hashes_ = 0;
  bool has_news_ = false;
  bool adapters_changed_ = false;  // and the router has not heard it yet
  uint64_t snapshot_number_ = 0;   // of the part written last
  uint32_t parts_sent_ = 0;        // of it, not yet passed to the engine
  uint64_t next_frame_seq_ = 1;
  uint64_t heartbeat_echo_ms_ = 0;
  uint64_t last_submit_number_ = 0;
  uint64_t last_admitted_submit_ = 0;
  std::map<AttemptKey, Live> live_;
  std::map<AttemptKey, Assembly> assembling_;
};

}  // namespace quire
