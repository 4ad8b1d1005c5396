// One link to one worker: dials, greets, keeps the Attach alive, dials again when it ends.
//
// Owner: the dispatcher, on the router's executor; every call and every callback happens there. The
// listener outlives the link and may call Send* inside a callback, but must not destroy the link
// there.
//  1. Callbacks come as OnLinkUp, then any others, then OnLinkDown; then again from the start, each
//     time with a higher attach number.
//  2. Frames go up in the order in which they came; a gap in frame_seq ends the Attach.
//  3. A link that is not up takes nothing: Send* needs up().
//  4. Cancel, Finish and Grant overtake Submits that wait to be sent, but never the Submit of their
//     own attempt. submit_number is contiguous in an Attach.
//  5. Time by which this router's own timer ran late never counts as a worker's silence.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/timer.h"
#include "common/wire/router_frames.h"
#include "common/wire/values.h"
#include "common/wire/worker_frames.h"
#include "router/core/limits.h"

namespace quire {

struct LinkOptions {
  std::string target;  // HOST:PORT
  WorkerIndex worker;
  RouterInstance router;
  uint32_t silence_ms = 2000;        // the worker is silent when no frame comes for longer
  uint32_t hello_timeout_ms = 5000;  // from dialling to the worker's Hello
  uint32_t heartbeat_ms = 1000;
  // The delay before dialling again; doubles up to the maximum, with jitter. A worker that returns
  // serves within a second, including its Hello and first step. This costs little, since a dial
  // reaches only its port.
  uint32_t backoff_min_ms = 100;
  uint32_t backoff_max_ms = 600;
  // An Attach that lived this long resets the back-off: a link that breaks now and then is dialled
  // at once, an address that refuses connections less and less often.
  uint32_t backoff_reset_ms = 250;
  bool wants_events = false;
};

// Why an Attach ended or could not begin; kSilent and kProtocol are this router's decision. With
// kConnectionRefused no process listens at the worker's address: the worker's process is gone.
enum class LinkDownReason : uint8_t { kClosed, kSilent, kProtocol, kRefused, kConnectionRefused };

class LinkListener {
 public:
  virtual ~LinkListener() = default;
  // Before OnLinkUp: an error ends the Attach with it.
  virtual absl::Status CheckHello(WorkerIndex /*worker*/, const WorkerHello& /*hello*/) {
    return absl::OkStatus();
  }
  // Called when a back-off is over. False: not yet.
  virtual bool MayDial(WorkerIndex /*worker*/) { return true; }
  virtual void OnLinkUp(WorkerIndex worker, const WorkerHello& hello) = 0;
  // The frame may be changed.
  virtual void OnStep(WorkerIndex worker, StepFrame& step) = 0;
  virtual void OnDraining(WorkerIndex worker, uint64_t remaining_ms) = 0;
  virtual void OnSnapshotChunk(WorkerIndex worker, const SnapshotChunk& chunk) = 0;
  // What the worker holds from now on, and the answer to an order, which comes after it.
  virtual void OnAdapters(WorkerIndex /*worker*/, const AdaptersChanged& /*changed*/) {}
  virtual void OnAdapterResult(WorkerIndex /*worker*/, const AdapterResult& /*result*/) {}
  // Nothing has come for the silence time; called again with every tick. False: the Attach stays.
  virtual bool OnSilent(WorkerIndex /*worker*/) { return true; }
  // Its frames come, but none has acknowledged a heartbeat of this router for the silence time: the
  // worker receives nothing. Called with every tick. False: the Attach stays, until the worker ends
  // it.
  virtual bool OnDeaf(WorkerIndex /*worker*/) { return true; }
  // Also called without an OnLinkUp before it, when dialling failed. Nothing that was sent will be
  // answered.
  virtual void OnLinkDown(WorkerIndex worker, LinkDownReason reason, const absl::Status& why) = 0;
};

class Link final : private FrameStream::Receiver {
 public:
  // `dialer`, `executor`, `rng` and `listener` outlive the link.
  Link(LinkOptions options, Dialer& dialer, Executor& executor, Rng& rng, LinkListener& listener);

  void Start();  // once; dials at once
  bool up() const { return phase_ == Phase::kUp; }
  const std::string& target() const { return options_.target; }
  uint64_t attach_number() const { return attach_number_; }
  size_t WaitingSubmits() const { return waiting_.size(); }

  // Numbers the Submit when it is written; `work_tokens` is its prefill work. Needs up().
  void SendSubmit(Submit submit, uint64_t work_tokens);
  void SendCancel(const Cancel& cancel);
  void SendFinish(const Finish& finish);
  void SendGrant(const Grant& grant);
  void SendSnapshotRequest(uint64_t snapshot_number);
  // Requires that the worker's Hello lists kFeatureAdapterOrders.
  void SendAdapterOrder(const AdapterOrder& order);

  // Submits of this Attach that the worker's load does not include yet, and their work.
  uint64_t UnseenSubmits() const;
  uint64_t UnseenTokens() const { return unseen_tokens_; }

 private:
  enum class Phase : uint8_t { kIdle, kGreeting, kUp, kBackoff };
  // A Submit that waits to be sent; encoded when its turn comes.
  struct Waiting {
    Submit submit;
    uint64_t work_tokens = 0;
    std::vector<std::string> frames;  // once begun
    size_t sent = 0;                  // of these
    bool begun = false;
    std::vector<std::string> after;  // control frames of the same attempt that follow it
  };

  void OnFrame(std::string_view frame) override;
  void OnClosed(const absl::Status& status) override;
  void OnWritable() override;

  void Dial();
  void DialAfter(Micros delay);
  void HandleHello(WorkerHello hello);
  void HandleStep(StepFrame& step);
  void HandleAdapters(const AdaptersChanged& changed);
  void Down(LinkDownReason reason, const absl::Status& why);
  void ScheduleTick();
  bool IsDeaf(Micros now) const;
  void Tick(Micros due);
  void Pump();
  void WriteControl(const AttemptKey& key, std::string frame);
  std::deque<Waiting>::iterator FindWaiting(const AttemptKey& key);

  const LinkOptions options_;
  Dialer& dialer_;
  Executor& executor_;
  Rng& rng_;
  LinkListener& listener_;

  Phase phase_ = Phase::kIdle;
  std::unique_ptr<FrameStream> stream_;
  Timer timer_{executor_};
  uint64_t attach_number_ = 0;
  uint64_t submit_number_ = 0;   // of the last Submit on this Attach
  uint64_t next_frame_seq_ = 0;  // 0: the first one is still to come
  // Outputs of the last Step; the memory is reused. Owned by the link and by the frame that is
  // being handled, since its listener may end the link.
  std::shared_ptr<StepFrame> step_storage_ = std::make_shared<StepFrame>();
  uint32_t vocab_size_ = 0;  // of the worker's model
  std::vector<std::string> served_names_;
  uint32_t backoff_ms_ = 0;
  Micros dialled_at_ = 0;
  Micros last_frame_at_ = 0;  // moved forward when this router itself was late
  Micros last_heartbeat_at_ = 0;
  Micros last_echo_at_ =
      0;  // of a heartbeat, moved forward as well; 0: this worker acknowledges none
  uint64_t unechoed_bytes_ = 0;  // of Submits written since
  bool writable_ = true;
  std::deque<Waiting> waiting_;
  struct Unseen {
    uint64_t submit_number = 0;
    uint64_t work_tokens = 0;
  };
  std::deque<Unseen> unseen_;   // begun, in order; one that is being written is in waiting_ too
  uint64_t unseen_tokens_ = 0;  // of waiting_ and unseen_
};

}  // namespace quire
