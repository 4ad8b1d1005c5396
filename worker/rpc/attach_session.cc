#include "worker/rpc/attach_session.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "common/wire/features.h"

namespace quire {
namespace {

template <class Value>
void MoveAppend(std::vector<Value>& from, std::vector<Value>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

AttachSession::AttachSession(uint64_t id, std::unique_ptr<FrameStream> stream,
                             const SessionContext& context)
    : id_(id),
      stream_(std::move(stream)),
      worker_(context.worker),
      executor_(context.executor),
      host_(context.host),
      metrics_(context.metrics),
      max_unsent_hashes_(context.max_unsent_hashes) {}

void AttachSession::Start() {
  last_received_ = last_sent_ = Now();
  ArmTick(Now() + kPulseInterval);
  stream_->Start(this);
}

void AttachSession::OnFrame(std::string_view frame) {
  if (state_ == State::kClosing || state_ == State::kGone) return;
  last_received_ = Now();
  metrics_.frames_received.Add();
  const DecodeLimits limits{static_cast<int32_t>(worker_.vocab_size), worker_.limits.max_choices};
  absl::StatusOr<RouterMessage> message = DecodeRouterFrame(frame, limits);
  if (!message.ok()) return ProtocolError(StatusMessage(message.status()));
  const bool is_hello = std::holds_alternative<RouterHello>(*message);
  if (is_hello != (state_ == State::kAwaitingHello)) {
    return ProtocolError(is_hello ? "hello: was said twice" : "the first frame must be the hello");
  }
  Handle(*std::move(message));
  if (has_news_) Flush();
}

void AttachSession::OnClosed(const absl::Status& status) {
  if (state_ == State::kGone) return;
  End(status.ok() ? absl::UnavailableError("the router ended the Attach") : status, "", false);
  Gone();
}

void AttachSession::OnWritable() {
  writable_ = true;
  TellPartsSent();
  if (adapters_changed_) WriteAdapters();
  if (has_news_) Flush();
}

void AttachSession::End(const absl::Status& why, std::string_view parting, bool fenced) {
  if (state_ == State::kClosing || state_ == State::kGone) return;
  const bool was_attached = state_ == State::kAttached;
  state_ = State::kClosing;
  if (!parting.empty()) stream_->Write(EncodeAttachRefused(parting, fenced));
  stream_->Close();
  while (!live_.empty()) Forget(live_.begin()->first);
  assembling_.clear();
  backlog_ = StepFrame();
  ArmTick(Now() + kCloseGrace);
  if (was_attached) host_.OnSessionEnded(*this, why);
}

void AttachSession::Gone() {
  if (state_ == State::kGone) return;
  state_ = State::kGone;
  timer_.Stop();
  host_.OnSessionGone(*this);
}

void AttachSession::ProtocolError(const std::string& message) {
  metrics_.protocol_errors.Add();
  const bool unknown_router = state_ == State::kAwaitingHello;
  if (unknown_router) metrics_.attaches_refused.Add();
  End(InvalidArgument(message), message, false);
}

void AttachSession::ArmTick(Micros due) {
  timer_.Set(due, [this] { Tick(); });
}

void AttachSession::Tick() {
  const Micros now = Now();
  if (state_ == State::kClosing) return Gone();  // its last frames had their time
  host_.RanLate(timer_.due());
  // This process was held up: frames of that time wait behind this timer, and the router wasn't
  // silent.
  last_received_ = std::min(now, last_received_ + (now - timer_.due()));
  if (now - last_received_ > kRouterSilenceMs * kMicrosPerMilli) {
    End(absl::DeadlineExceededError("the router was silent for 5 s"),
        "nothing was heard from this router for 5 s", false);
    return;
  }
  if (state_ == State::kAttached && writable_ && now - last_sent_ >= kPulseInterval) WriteStep();
  TellPartsSent();
  const Micros next = last_sent_ + kPulseInterval;
  ArmTick(next > now ? next : now + kPulseInterval);  // the second while the stream is blocked
}

void AttachSession::Deliver(RouterOutput& output) {
  if (state_ != State::kAttached) return;
  const auto is_stale = [this](const auto& word) {
    const bool stale = !live_.contains(word.key);
    if (stale) metrics_.stale_words.Add();
    return stale;
  };
  std::erase_if(output.admitted, is_stale);
  std::erase_if(output.outputs, is_stale);
  std::erase_if(output.prompt_logprobs, is_stale);
  std::erase_if(output.ended, is_stale);
  std::erase_if(output.refused, is_stale);
  for (const Ended& ended : output.ended) {
    if (ended.last_choice || QUIRE_BUG(one_end_ends_the_attempt)) Forget(ended.key);
  }
  for (const Refused& refused : output.refused) {
    metrics_.refusals[static_cast<size_t>(refused.code)]->Add();
    Forget(refused.key);
    host_.OnRefused(router_.instance, refused);
  }
  // Events that the engine sent to an older Attach of this router have higher numbers.
  last_admitted_submit_ = std::min(output.last_admitted_submit, last_submit_number_);
  AddToBacklog(output);
}

void AttachSession::AddToBacklog(RouterOutput& output) {
  backlog_bytes_ += EncodedBytesBound(output);
  has_news_ = true;
  MoveAppend(output.admitted, backlog_.admitted);
  // Copied: their memory is returned to the engine.
  backlog_.outputs.insert(backlog_.outputs.end(), output.outputs.begin(), output.outputs.end());
  MoveAppend(output.prompt_logprobs, backlog_.prompt_logprobs);
  MoveAppend(output.ended, backlog_.ended);
  MoveAppend(output.refused, backlog_.refused);
  if (backlog_bytes_ + stream_->PendingBytes() > kMaxUnsentBytes) {
    metrics_.unsent_limit_hits.Add();
    End(absl::ResourceExhaustedError("the router reads too slowly: 8 MiB of frames wait for it"),
        "this router reads too slowly: 8 MiB of frames waited for it", false);
  }
}

void AttachSession::EventsMissed() {
  if (state_ != State::kAttached || !router_.wants_events) return;
  backlog_.events.clear();
  backlog_hashes_ = 0;
  backlog_.events_dropped = !QUIRE_BUG(dropped_events_not_told);
  has_news_ = true;
}

void AttachSession::DeliverEvents(std::span<const CacheEvents> events, uint64_t first_event_seq) {
  if (state_ != State::kAttached || !router_.wants_events || events.empty()) return;
  has_news_ = true;
  size_t hashes = events.size();
  for (const CacheEvents& event : events) hashes += event.hashes.size();
  if (backlog_hashes_ + hashes > max_unsent_hashes_) {
    metrics_.events_dropped.Add();
    return EventsMissed();
  }
  if (backlog_.events.empty()) backlog_.first_event_seq = first_event_seq;
  backlog_hashes_ += hashes;
  backlog_.events.insert(backlog_.events.end(), events.begin(), events.end());
}

void AttachSession::DeliverSnapshot(const SnapshotPart& part) {
  if (state_ != State::kAttached) return;
  if (has_news_) WriteStep();  // chunks and steps leave in the order in which they were made
  if (state_ != State::kAttached) return;
  std::string frame = EncodeSnapshotChunk(part);
  if (stream_->PendingBytes() + frame.size() > kMaxUnsentBytes) {
    metrics_.unsent_limit_hits.Add();
    End(absl::ResourceExhaustedError("the router reads too slowly for its snapshot"),
        "this router reads too slowly: 8 MiB of frames waited for it", false);
    return;
  }
  metrics_.frames_sent.Add();
  metrics_.bytes_sent.Add(frame.size());
  if (part.snapshot_number != snapshot_number_) parts_sent_ = 0;
  snapshot_number_ = part.snapshot_number;
  ++parts_sent_;
  writable_ = stream_->Write(std::move(frame)) && writable_;
  TellPartsSent();
}

// While the stream is blocked the engine makes no further parts.
void AttachSession::TellPartsSent() {
  if (state_ != State::kAttached || !writable_ || parts_sent_ == 0) return;
  if (!host_.Push(SnapshotSentCommand{router_.instance, snapshot_number_, parts_sent_})) return;
  parts_sent_ = 0;  // otherwise sent again by the next tick
}

void AttachSession::Flush() {
  if (state_ == State::kAttached && writable_ && has_news_) WriteStep();
}

void AttachSession::WriteStep() {
  // After a standstill of this process a frame may be read before the timer that knows of it.
  if (Now() > timer_.due()) host_.RanLate(timer_.due());
  StepFrame step = host_.Pulse();
  step.frame_seq = next_frame_seq_;
  step.admitted = std::move(backlog_.admitted);
  step.outputs = std::move(backlog_.outputs);
  step.prompt_logprobs = std::move(backlog_.prompt_logprobs);
  step.ended = std::move(backlog_.ended);
  step.refused = std::move(backlog_.refused);
  step.events = std::move(backlog_.events);
  step.first_event_seq = step.events.empty() ? 0 : backlog_.first_event_seq;
  step.events_dropped = backlog_.events_dropped;
  step.last_admitted_submit = last_admitted_submit_;
  step.heartbeat_echo_ms = std::exchange(heartbeat_echo_ms_, 0);
  backlog_ = StepFrame();
  backlog_bytes_ = backlog_hashes_ = 0;
  has_news_ = false;
  for (std::string& frame : EncodeStep(step)) {
    ++next_frame_seq_;
    metrics_.frames_sent.Add();
    metrics_.bytes_sent.Add(frame.size());
    if (!stream_->Write(std::move(frame))) writable_ = false;
  }
  last_sent_ = Now();
}

void AttachSession::TellDraining() {
  if (state_ != State::kAttached) return;
  if (has_news_) WriteStep();
  stream_->Write(EncodeDraining(host_.drain_remaining_ms()));
}

// While the stream is blocked the changes of that time become one.
void AttachSession::TellAdapters() {
  const std::vector<std::string> needed = {std::string(kFeatureAdapterChanges)};
  if (state_ != State::kAttached || !MissingFeature(needed, router_.features).empty()) return;
  adapters_changed_ = true;
  if (writable_) WriteAdapters();
}

void AttachSession::WriteAdapters() {
  adapters_changed_ = false;
  if (state_ != State::kAttached) return;
  writable_ =
      stream_->Write(EncodeAdaptersChanged({worker_.adapters, host_.held_adapters()})) && writable_;
}

void AttachSession::Tell(const AdapterResult& result) {
  if (state_ != State::kAttached) return;
  if (adapters_changed_) WriteAdapters();
  writable_ = stream_->Write(EncodeAdapterResult(result)) && writable_;
}

void AttachSession::Refuse(Refused refused) {
  metrics_.refusals[static_cast<size_t>(refused.code)]->Add();
  host_.OnRefused(router_.instance, refused);
  RouterOutput output;
  output.refused.push_back(std::move(refused));
  AddToBacklog(output);
}

}  // namespace quire
