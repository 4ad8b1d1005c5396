#include "router/link/worker_call_asio.h"

#include <boost/asio/post.hpp>
#include <charconv>
#include <utility>
#include <vector>

#include "common/check.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using http2::ErrorCode;
using http2::Find;
using http2::HeaderBlock;
using http2::StreamId;
using Outcome = WorkerSocket::Outcome;

constexpr int kMaxReadsPerTurn = 16;  // then others have their turn
constexpr size_t kWriteChunkBytes = 64u << 10;

http2::Settings LinkSettings() {
  http2::Settings settings;
  settings.stream_window_bytes = kLinkWindowBytes;
  settings.connection_window_bytes = kLinkWindowBytes;
  settings.max_header_list_bytes = kMaxLinkHeaderBytes;
  return settings;
}

int HttpStatusOf(http2::Headers headers) {
  const std::string_view text = Find(headers, ":status").value_or("");
  int status = 0;
  std::from_chars(text.data(), text.data() + text.size(), status);
  return status;
}

}  // namespace

WorkerCall::WorkerCall(std::shared_ptr<WorkerCallWorld> world, const WorkerCallOptions& options)
    : world_(std::move(world)),
      socket_(std::make_shared<WorkerSocket>(world_->executor, *world_->resolver,
                                             static_cast<WorkerSocket::Events&>(*this))),
      session_(http2::Session::Side::kClient, LinkSettings(), *this),
      reader_(options.max_message_bytes),
      target_(options.target),
      in_clear_(options.tls == nullptr) {
  const std::string timeout = http2::PrintTimeout(options.timeout);
  std::vector<http2::Header> request = {
      {":method", "POST"},
      {":scheme", in_clear_ ? "http" : "https"},
      {":path", options.path},
      {":authority", options.tls == nullptr ? options.target : options.tls->name},
      {"te", "trailers"},
      {"content-type", "application/grpc"},
      {"user-agent", "quire-router"},
      {"grpc-accept-encoding", "identity"},
  };
  if (options.timeout > 0) {
    request.push_back({"grpc-timeout", timeout});
    deadline_ = world_->executor.clock().Now() + options.timeout;
  }
  stream_ = session_.Open(request);
  if (in_clear_) return;
  absl::StatusOr<TlsConnection> tls = world_->tls.NewConnection(*options.tls);
  begin_ = tls.status();
  if (tls.ok()) tls_ = *std::move(tls);
}

void WorkerCall::Start(Receiver& receiver) {
  QUIRE_CHECK_MSG(receiver_ == nullptr && !ended_, "a call is started once");
  receiver_ = &receiver;
  WatchLater();
  if (begin_.ok()) return socket_->Connect(target_, std::move(tls_));
  asio::post(world_->executor.context(), [self = shared_from_this()] {
    self->EndWith(absl::UnavailableError(AbslView(StatusMessage(self->begin_))));
    self->Settle();
  });
}

// ---- calls of the owner

bool WorkerCall::Write(std::string_view message) {
  if (ended_) return true;
  session_.Write(stream_, http2::kMessagePrefixBytes + message.size(), [&](char* at) {
    http2::PutMessagePrefix(at, message.size());
    message.copy(at + http2::kMessagePrefixBytes, message.size());
  });
  pings_without_data_ = 0;
  FlushLater();
  if (PendingBytes() <= kMaxPendingWriteBytes) return true;
  wants_writable_ = true;
  return false;
}

size_t WorkerCall::PendingBytes() const {
  return session_.Queued(stream_) + out_.size() - out_offset_;
}

void WorkerCall::EndWriting() {
  if (ended_) return;
  session_.End(stream_);
  FlushLater();
}

void WorkerCall::Cancel() {
  receiver_ = nullptr;
  EndWith(absl::CancelledError());
  Settle();
}

// ---- callbacks of the socket

void WorkerCall::OnConnected() {
  const auto self = shared_from_this();
  connected_ = true;
  OnReady();
}

void WorkerCall::OnNotConnected(const absl::Status& why) {
  const auto self = shared_from_this();
  EndWith(why);
  Settle();
}

// In this order: the answer to a read leaves with the data that waited.
void WorkerCall::OnReady() {
  const auto self = shared_from_this();
  Read();
  Flush();
}

void WorkerCall::FlushLater() {
  if (!connected_ || flush_posted_ || ended_) return;
  flush_posted_ = true;
  asio::post(world_->executor.context(), [self = shared_from_this()] {
    self->flush_posted_ = false;
    self->Flush();
  });
}

bool WorkerCall::FillOut() {
  if (out_offset_ < out_.size()) return true;
  out_.clear();
  out_offset_ = 0;
  in_session_ = true;
  session_.Send(out_, kWriteChunkBytes);
  in_session_ = false;
  return !out_.empty();
}

void WorkerCall::Flush() {
  if (ended_) return;
  while (FillOut()) {
    size_t moved = 0;
    const Outcome outcome = socket_->Write(std::string_view(out_).substr(out_offset_), moved);
    out_offset_ += moved;
    left_ += moved;
    if (outcome == Outcome::kMoved) continue;
    if (outcome == Outcome::kRead || outcome == Outcome::kWrite) {
      socket_->Await(outcome);
    } else {
      EndWith(absl::UnavailableError(AbslView(target_ + ": the connection broke")));
    }
    break;
  }
  if (session_.over()) {
    EndWith(absl::UnavailableError(AbslView(target_ + ": the peer does not speak HTTP/2 well")));
  }
  TellWritable();
  Settle();
}

void WorkerCall::TellWritable() {
  if (!wants_writable_ || ended_ || PendingBytes() >= kMaxPendingWriteBytes / 2) return;
  wants_writable_ = false;
  receiver_->OnWritable();
}

bool WorkerCall::TakeBytes(std::string_view bytes) {
  has_read_ = true;
  in_session_ = true;
  const absl::Status status = session_.Receive(bytes);
  in_session_ = false;
  if (!status.ok()) {
    EndWith(absl::UnavailableError(AbslView(target_ + ": " + StatusMessage(status))));
  }
  return !ended_;
}

void WorkerCall::Read() {
  std::string& buffer = world_->read_buffer;
  for (int i = 0; i < kMaxReadsPerTurn && !ended_; ++i) {
    size_t moved = 0;
    const Outcome outcome = socket_->Read(buffer.data(), buffer.size(), moved);
    if (moved > 0 && !TakeBytes(std::string_view(buffer).substr(0, moved))) break;
    if (outcome == Outcome::kMoved) {
      // The system returns what it has: less than requested is all of it.
      if (moved == buffer.size() || !in_clear_) continue;
      return socket_->Await(Outcome::kRead);
    }
    if (outcome == Outcome::kRead || outcome == Outcome::kWrite) return socket_->Await(outcome);
    EndWith(absl::UnavailableError(AbslView(target_ + ": the worker closed the connection")));
  }
  if (ended_) return Settle();
  asio::post(world_->executor.context(), [self = shared_from_this()] { self->OnReady(); });
}

// ---- callbacks of the session

void WorkerCall::OnHeaders(StreamId, const HeaderBlock& block) {
  if (block.too_large) {
    return EndWith(absl::ResourceExhaustedError("the worker's headers are larger than the limit"));
  }
  if (!block.trailers) http_status_ = HttpStatusOf(block.fields);
  if (block.trailers || block.ends) {
    trailers_ = http2::StatusOfTrailers(block.fields, http_status_);
  } else if (http_status_ != 200) {
    EndWith(http2::StatusOfTrailers(block.fields, http_status_));
  } else if (Find(block.fields, "grpc-encoding").value_or("identity") != "identity") {
    EndWith(absl::UnimplementedError("the worker compresses its messages"));
  }
}

void WorkerCall::OnData(StreamId stream, std::string_view bytes) {
  const size_t size = bytes.size();
  std::string_view message;
  while (!ended_ && reader_.Next(bytes, message)) receiver_->OnMessage(message);
  if (!reader_.status().ok()) EndWith(reader_.status());
  session_.Consume(stream, size);
}

void WorkerCall::OnEnd(StreamId) {
  if (!trailers_.has_value()) trailers_ = http2::StatusOfTrailers({}, http_status_);
  if (trailers_->ok() && reader_.in_message()) {
    trailers_ = absl::InternalError("the worker's last message is not whole");
  }
  EndWith(*trailers_);
}

void WorkerCall::OnClosed(StreamId, ErrorCode code) {
  EndWith(absl::Status(http2::CodeOfReset(code),
                       AbslView(std::string("the worker reset the call: ") + NameOf(code))));
}

// ---- time

void WorkerCall::WatchLater() {
  Executor& executor = world_->executor;
  watch_ = executor.PostAt(executor.clock().Now() + world_->turn, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->watch_ = 0;
    self->WatchWrites();
    self->WatchReads();
    if (self->deadline_ != 0 && self->world_->executor.clock().Now() > self->deadline_) {
      self->EndWith(absl::DeadlineExceededError("the worker took too long"));
    }
    if (!self->ended_) self->WatchLater();
    self->Settle();
  });
}

void WorkerCall::WatchWrites() {
  if (!connected_) return;
  const bool moves = PendingBytes() == 0 || left_ >= kWriteStepBytes;
  if (moves) left_ = 0;
  blocked_turns_ = moves ? 0 : blocked_turns_ + 1;
  if (blocked_turns_ > kWriteBlockedTurns) {
    EndWith(absl::UnavailableError("the worker does not read what is sent to it"));
  }
}

void WorkerCall::WatchReads() {
  if (!connected_) return;
  silent_turns_ = has_read_ ? 0 : silent_turns_ + 1;
  pinged_ = pinged_ && !has_read_;
  has_read_ = false;
  if (pinged_ && silent_turns_ >= kLinkPingAfterTurns + kLinkPingTimeoutTurns) {
    EndWith(absl::UnavailableError("the worker answers no ping"));
  }
  const bool may_ping = !pinged_ && pings_without_data_ < kMaxPingsWithoutData;
  if (silent_turns_ < kLinkPingAfterTurns || !may_ping || ended_) return;
  pinged_ = true;
  ++pings_without_data_;
  session_.Ping(0);
  FlushLater();
}

// ---- the end

void WorkerCall::EndWith(const absl::Status& status) {
  if (ended_) return;
  ended_ = true;
  status_ = status;
}

void WorkerCall::Settle() {
  if (!ended_ || settled_ || in_session_) return;
  settled_ = true;
  if (watch_ != 0) world_->executor.Cancel(watch_);
  watch_ = 0;
  if (connected_) SayGoodbye();
  socket_->Close();
  if (Receiver* receiver = std::exchange(receiver_, nullptr)) receiver->OnEnd(status_);
}

// Only what the system takes at once; the worker also learns of the end by the closing.
void WorkerCall::SayGoodbye() {
  session_.Reset(stream_, ErrorCode::kCancel);
  session_.Terminate(ErrorCode::kNoError);
  while (FillOut()) {
    size_t moved = 0;
    const Outcome outcome = socket_->Write(std::string_view(out_).substr(out_offset_), moved);
    out_offset_ += moved;
    if (outcome != Outcome::kMoved) return;
  }
}

}  // namespace quire
