#include "router/link/link.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "common/wire/features.h"

namespace quire {
namespace {

// The memory of a larger Step is freed at once.
constexpr size_t kKeptFrameBytes = 64u << 10;
constexpr Micros kTickInterval = 100 * kMicrosPerMilli;
// A heartbeat behind long Submits is delayed on a narrow link: at least this much of them passes.
constexpr uint64_t kSlowestBytesPerMs = 32;

// The system's text for it, which gRPC includes in its own message, and the virtual network too.
bool IsConnectionRefused(const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return false;
  const std::string message = StatusMessage(status);
  return message.find("onnection refused") != std::string::npos;
}

Micros FromMillis(uint32_t millis) { return static_cast<Micros>(millis) * kMicrosPerMilli; }

}  // namespace

Link::Link(LinkOptions options, Dialer& dialer, Executor& executor, Rng& rng,
           LinkListener& listener)
    : options_(std::move(options)),
      dialer_(dialer),
      executor_(executor),
      rng_(rng),
      listener_(listener),
      backoff_ms_(options_.backoff_min_ms) {
  QUIRE_CHECK(options_.backoff_min_ms > 0 && options_.backoff_min_ms <= options_.backoff_max_ms);
}

void Link::Start() {
  QUIRE_CHECK(phase_ == Phase::kIdle);
  Dial();
}

void Link::Dial() {
  QUIRE_CHECK(stream_ == nullptr && waiting_.empty());
  phase_ = Phase::kGreeting;
  if (!QUIRE_BUG(attach_number_used_again) || attach_number_ == 0) ++attach_number_;
  submit_number_ = 0;
  next_frame_seq_ = 0;
  last_echo_at_ = 0;
  unechoed_bytes_ = 0;
  writable_ = true;
  dialled_at_ = last_frame_at_ = last_heartbeat_at_ = executor_.clock().Now();
  stream_ = dialer_.Dial(options_.target);
  stream_->Start(this);
  RouterHello hello;
  hello.instance = options_.router;
  hello.attach_number = attach_number_;
  hello.wants_events = options_.wants_events;
  hello.features.emplace_back(kFeatureAdapterChanges);
  writable_ = stream_->Write(EncodeHello(hello));
  ScheduleTick();
}

void Link::ScheduleTick() {
  const Micros due = executor_.clock().Now() + kTickInterval;
  timer_.Set(due, [this, due] { Tick(due); });
}

// Lateness of the tick is lateness of this process: frames may wait unread in the socket for as
// long, so the silence clock moves forward by it.
void Link::Tick(Micros due) {
  const Micros now = executor_.clock().Now();
  const Micros late = std::max<Micros>(0, now - due);
  if (!QUIRE_BUG(own_lateness_counts)) last_frame_at_ = std::min(now, last_frame_at_ + late);
  dialled_at_ = std::min(now, dialled_at_ + late);
  if (last_echo_at_ != 0) last_echo_at_ = std::min(now, last_echo_at_ + late);
  if (phase_ == Phase::kGreeting && now - dialled_at_ > FromMillis(options_.hello_timeout_ms)) {
    Down(LinkDownReason::kSilent, absl::DeadlineExceededError("the worker sent no Hello"));
    return;
  }
  if (phase_ == Phase::kUp) {
    const bool silent = now - last_frame_at_ > FromMillis(options_.silence_ms);
    if (silent && listener_.OnSilent(options_.worker)) {
      Down(LinkDownReason::kSilent, absl::DeadlineExceededError("the worker is silent"));
      return;
    }
    if (IsDeaf(now) && listener_.OnDeaf(options_.worker)) {
      Down(LinkDownReason::kSilent,
           absl::DeadlineExceededError("the worker hears nothing of this router"));
      return;
    }
    if (now - last_heartbeat_at_ >= FromMillis(options_.heartbeat_ms)) {
      last_heartbeat_at_ = now;
      stream_->Write(EncodeHeartbeat(static_cast<uint64_t>(now / kMicrosPerMilli)));
    }
  }
  ScheduleTick();
}

// Heartbeats leave every heartbeat_ms, and each is acknowledged within a frame: a link on which
// they are late, but arrive, brings one as often.
bool Link::IsDeaf(Micros now) const {
  if (last_echo_at_ == 0) return false;
  const Micros patience =
      FromMillis(std::max(options_.silence_ms, 2 * options_.heartbeat_ms)) +
      static_cast<Micros>(unechoed_bytes_ / kSlowestBytesPerMs) * kMicrosPerMilli;
  return now - last_echo_at_ > patience;
}

void Link::OnFrame(std::string_view frame) {
  QUIRE_CHECK(phase_ == Phase::kGreeting || phase_ == Phase::kUp);
  last_frame_at_ = executor_.clock().Now();
  const std::shared_ptr<StepFrame> storage = step_storage_;
  absl::StatusOr<WorkerMessage> message =
      DecodeWorkerFrame(frame, std::exchange(*storage, StepFrame()));
  if (!message.ok()) {
    Down(LinkDownReason::kProtocol, message.status());
    return;
  }
  if (auto* refused = std::get_if<AttachRefused>(&*message)) {
    Down(LinkDownReason::kRefused,
         absl::FailedPreconditionError(AbslView("the worker refused: " + refused->message)));
    return;
  }
  if (auto* hello = std::get_if<WorkerHello>(&*message)) {
    HandleHello(std::move(*hello));
    return;
  }
  if (phase_ != Phase::kUp) {
    Down(LinkDownReason::kProtocol, InvalidArgument("the worker's first frame is no Hello"));
    return;
  }
  if (auto* step = std::get_if<StepFrame>(&*message)) {
    HandleStep(*step);
    if (frame.size() <= kKeptFrameBytes) storage->outputs = std::move(step->outputs);
  } else if (auto* draining = std::get_if<DrainingNotice>(&*message)) {
    listener_.OnDraining(options_.worker, draining->remaining_ms);
  } else if (auto* chunk = std::get_if<SnapshotChunk>(&*message)) {
    listener_.OnSnapshotChunk(options_.worker, *chunk);
  } else if (auto* changed = std::get_if<AdaptersChanged>(&*message)) {
    HandleAdapters(*changed);
  } else if (auto* result = std::get_if<AdapterResult>(&*message)) {
    listener_.OnAdapterResult(options_.worker, *result);
  }
}

void Link::HandleAdapters(const AdaptersChanged& changed) {
  const absl::Status fit = CheckServedAdapters(changed.adapters, served_names_);
  if (!fit.ok()) return Down(LinkDownReason::kProtocol, fit);
  listener_.OnAdapters(options_.worker, changed);
}

void Link::HandleHello(WorkerHello hello) {
  if (phase_ == Phase::kUp) {
    Down(LinkDownReason::kProtocol, InvalidArgument("the worker greeted twice"));
    return;
  }
  if (hello.protocol < kProtocolMin || hello.protocol > kProtocolMax) {
    Down(LinkDownReason::kRefused,
         absl::FailedPreconditionError(AbslView(
             "the worker speaks protocol " + std::to_string(hello.protocol) + "; this router " +
             std::to_string(kProtocolMin) + " to " + std::to_string(kProtocolMax))));
    return;
  }
  if (absl::Status status = listener_.CheckHello(options_.worker, hello); !status.ok()) {
    Down(LinkDownReason::kRefused, status);
    return;
  }
  phase_ = Phase::kUp;
  vocab_size_ = hello.vocab_size;
  served_names_ = hello.served_names;
  listener_.OnLinkUp(options_.worker, hello);
}

void Link::HandleStep(StepFrame& step) {
  if (next_frame_seq_ != 0 && step.frame_seq != next_frame_seq_) {
    Down(LinkDownReason::kProtocol,
         InvalidArgument("frame_seq is " + std::to_string(step.frame_seq) + ", expected " +
                         std::to_string(next_frame_seq_)));
    return;
  }
  next_frame_seq_ = step.frame_seq + 1;
  if (step.heartbeat_echo_ms != 0) {
    last_echo_at_ = executor_.clock().Now();
    unechoed_bytes_ = 0;
  }
  for (const Output& output : step.outputs) {
    for (TokenId id : output.ids) {
      if (static_cast<uint32_t>(id) < vocab_size_) continue;
      Down(LinkDownReason::kProtocol, InvalidArgument("an output lies outside the vocabulary"));
      return;
    }
  }
  while (!unseen_.empty() && unseen_.front().submit_number <= step.last_admitted_submit) {
    unseen_tokens_ -= unseen_.front().work_tokens;
    unseen_.pop_front();
  }
  listener_.OnStep(options_.worker, step);
}

uint64_t Link::UnseenSubmits() const {
  const bool counted_twice = !waiting_.empty() && waiting_.front().begun;
  return waiting_.size() + unseen_.size() - (counted_twice ? 1 : 0);
}

void Link::OnClosed(const absl::Status& status) {
  const bool refused = phase_ == Phase::kGreeting && IsConnectionRefused(status);
  Down(refused ? LinkDownReason::kConnectionRefused : LinkDownReason::kClosed,
       status.ok() ? absl::UnavailableError("the worker closed the stream") : status);
}

void Link::Down(LinkDownReason reason, const absl::Status& why) {
  QUIRE_CHECK(phase_ == Phase::kGreeting || phase_ == Phase::kUp);
  const Micros now = executor_.clock().Now();
  const bool lived =
      phase_ == Phase::kUp && now - dialled_at_ >= FromMillis(options_.backoff_reset_ms);
  phase_ = Phase::kBackoff;
  waiting_.clear();
  unseen_.clear();
  unseen_tokens_ = 0;
  stream_.reset();
  if (lived) backoff_ms_ = options_.backoff_min_ms;
  // Between half and all of the back-off, so that routers do not dial in step.
  const Micros whole = FromMillis(backoff_ms_);
  const Micros delay =
      whole / 2 + static_cast<Micros>(rng_.Next() % static_cast<uint64_t>(whole / 2 + 1));
  backoff_ms_ = std::min(backoff_ms_ * 2, options_.backoff_max_ms);
  DialAfter(delay);
  listener_.OnLinkDown(options_.worker, reason, why);
}

void Link::DialAfter(Micros delay) {
  timer_.SetIn(delay, [this] {
    if (listener_.MayDial(options_.worker)) {
      Dial();
    } else {
      DialAfter(FromMillis(options_.backoff_max_ms));
    }
  });
}

void Link::SendSubmit(Submit submit, uint64_t work_tokens) {
  QUIRE_CHECK_MSG(up(), "a submit needs a link that is up");
  waiting_.emplace_back();
  waiting_.back().submit = std::move(submit);
  waiting_.back().work_tokens = work_tokens;
  unseen_tokens_ += work_tokens;
  Pump();
}

void Link::SendCancel(const Cancel& cancel) {
  QUIRE_CHECK_MSG(up(), "a cancel needs a link that is up");
  const auto waiting = FindWaiting(cancel.key);
  if (waiting != waiting_.end() && !waiting->begun && !cancel.one_choice) {
    unseen_tokens_ -= waiting->work_tokens;
    waiting_.erase(waiting);  // the worker never received it, and shall not
    return;
  }
  WriteControl(cancel.key, EncodeCancel(cancel));
}

void Link::SendFinish(const Finish& finish) {
  QUIRE_CHECK_MSG(up(), "a finish needs a link that is up");
  WriteControl(finish.key, EncodeFinish(finish));
}

void Link::SendGrant(const Grant& grant) {
  QUIRE_CHECK_MSG(up(), "a grant needs a link that is up");
  WriteControl(grant.key, EncodeGrant(grant));
}

void Link::SendSnapshotRequest(uint64_t snapshot_number) {
  QUIRE_CHECK_MSG(up(), "a snapshot request needs a link that is up");
  if (!stream_->Write(EncodeSnapshotRequest(snapshot_number))) writable_ = false;
}

void Link::SendAdapterOrder(const AdapterOrder& order) {
  QUIRE_CHECK_MSG(up(), "an order needs a link that is up");
  if (!stream_->Write(EncodeAdapterOrder(order))) writable_ = false;
}

void Link::WriteControl(const AttemptKey& key, std::string frame) {
  if (const auto waiting = FindWaiting(key); waiting != waiting_.end()) {
    waiting->after.push_back(std::move(frame));
    return;
  }
  if (!stream_->Write(std::move(frame))) writable_ = false;
}

std::deque<Link::Waiting>::iterator Link::FindWaiting(const AttemptKey& key) {
  return std::find_if(waiting_.begin(), waiting_.end(),
                      [&key](const Waiting& waiting) { return waiting.submit.key == key; });
}

void Link::OnWritable() {
  writable_ = true;
  Pump();
}

void Link::Pump() {
  while (writable_ && !waiting_.empty()) {
    Waiting& head = waiting_.front();
    if (!head.begun) {
      head.begun = true;
      head.submit.submit_number = ++submit_number_;
      unseen_.push_back({submit_number_, head.work_tokens});
      head.frames = EncodeSubmit(head.submit);
      head.submit.prompt_ids = {};
      head.submit.choices.clear();
    }
    while (writable_ && head.sent < head.frames.size()) {
      std::string& frame = head.frames[head.sent++];
      unechoed_bytes_ += frame.size();
      writable_ = stream_->Write(std::move(frame));
    }
    if (head.sent < head.frames.size()) return;
    for (std::string& frame : head.after) {
      if (!stream_->Write(std::move(frame))) writable_ = false;
    }
    waiting_.pop_front();
  }
}

}  // namespace quire
