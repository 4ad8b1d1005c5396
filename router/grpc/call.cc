#include "router/grpc/call.h"

#include <google/protobuf/message_lite.h>

#include <algorithm>

#include "common/check.h"
#include "router/grpc/connection.h"
#include "router/grpc/messages.h"

namespace quire {
namespace {

constexpr std::string_view kContentType = "application/grpc";

std::vector<http2::Header> ViewsOf(const GrpcMetadata& metadata) {
  std::vector<http2::Header> views;
  views.reserve(metadata.size());
  for (const auto& [name, value] : metadata) views.push_back({name, value});
  return views;
}

void AppendStatus(const absl::Status& status, GrpcMetadata& out) {
  out.emplace_back("grpc-status", std::to_string(static_cast<int>(status.code())));
  if (!status.message().empty()) {
    out.emplace_back("grpc-message", http2::PercentEncode(StatusMessage(status)));
  }
}

}  // namespace

std::string_view GrpcCallHead::Find(std::string_view name) const {
  for (const auto& [key, value] : metadata) {
    if (key == name) return value;
  }
  return {};
}

size_t GrpcCallHead::Count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(metadata.begin(), metadata.end(),
                                           [&](const auto& entry) { return entry.first == name; }));
}

std::string GrpcCallHead::All(std::string_view name) const {
  std::string all;
  for (const auto& [key, value] : metadata) {
    if (key == name) all.append(all.empty() ? "" : ",").append(value);
  }
  return all;
}

GrpcCall::GrpcCall(GrpcConnection& connection, http2::StreamId stream, GrpcCallHead head)
    : services_(connection.services()),
      connection_(&connection),
      stream_(stream),
      head_(std::move(head)),
      reader_(services_.limits.max_receive_bytes) {}

GrpcCall::~GrpcCall() { QUIRE_CHECK(connection_ == nullptr && deadline_timer_ == 0); }

void GrpcCall::Begin(std::shared_ptr<GrpcCallHandler> handler, bool many_messages,
                     http2::Encoding encoding) {
  handler_ = std::move(handler);
  many_messages_ = begun_ = many_messages;
  if (encoding != http2::Encoding::kIdentity) {
    reader_ = http2::MessageReader(services_.limits.max_receive_bytes, encoding);
  }
  if (head_.deadline == 0) return;
  deadline_timer_ = services_.executor.PostAt(head_.deadline, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnDeadline();
  });
}

// ---- messages of the client

void GrpcCall::OnData(std::string_view bytes) {
  if (!open()) {
    connection_->session().Consume(stream_, bytes.size());
    return;
  }
  // The connection's window stands for nothing that is held: one call may not hold up the others.
  connection_->session().ConsumeOfConnection(stream_, bytes.size());
  unconsumed_ += bytes.size();
  std::string_view message;
  while (reader_.Next(bytes, message)) {
    if (!TakeMessage(message)) return;
  }
  if (!reader_.status().ok()) {
    if (absl::IsResourceExhausted(reader_.status())) {
      services_.counters.grpc_messages_too_large.Add();
    }
    return Abort(absl::Status(reader_.status()));
  }
  CountHeld();
  if (open()) ConsumeWindow();
}

bool GrpcCall::TakeMessage(std::string_view message) {
  if (++messages_ > 1 && !many_messages_) {
    Abort(absl::UnimplementedError("the method takes one message"));
    return false;
  }
  waiting_.push_back(reader_.Take(message));
  waiting_bytes_ += message.size();
  Pump();
  return open();
}

void GrpcCall::OnEnd() {
  half_closed_ = true;
  if (!open()) return;
  if (reader_.in_message()) return Abort(absl::InternalError("the last message is not whole"));
  if (messages_ == 0 && !many_messages_) {
    return Abort(absl::UnimplementedError("the method takes one message"));
  }
  Pump();
}

void GrpcCall::SetReading(bool reading) {
  reading_ = reading;
  if (reading) Pump();
}

// Not from inside what it calls: a handler that reads on is given the next message by the call that
// is under way.
void GrpcCall::Pump() {
  if (std::exchange(pumping_, true)) return;
  while (open() && reading_ && parsing_bytes_ == 0 && !waiting_.empty()) {
    std::string message = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= message.size();
    Parse(std::move(message));
  }
  const bool idle = parsing_bytes_ == 0 && waiting_.empty();
  if (open() && idle && half_closed_ && !std::exchange(half_close_told_, true)) {
    handler_->OnHalfClose();
  }
  pumping_ = false;
  if (!open()) return;
  CountHeld();
  if (open()) ConsumeWindow();
}

void GrpcCall::Parse(std::string message) {
  if (message.size() <= services_.limits.background_parse_bytes) {
    return RunStep(handler_->Read(message));
  }
  parsing_bytes_ = message.size();
  auto step = std::make_shared<GrpcCallHandler::Step>();
  const bool queued = services_.background.Run(
      [step, handler = handler_, message = std::move(message)] { *step = handler->Read(message); },
      // The handler goes where it lives, on the loop.
      [step, self = shared_from_this(), handler = handler_] {
        self->parsing_bytes_ = 0;
        if (!self->open()) return;
        self->RunStep(*step);
        self->Pump();
      });
  if (queued) return;
  parsing_bytes_ = 0;
  RefuseForSize();
}

void GrpcCall::RefuseForSize() {
  services_.counters.bodies_refused.Add();
  const ApiError error = TooManyLargeRequests();
  AddComeBack(error);
  Abort(ToStatus(error));
}

void GrpcCall::RunStep(const GrpcCallHandler::Step& step) {
  if (!step) return Abort(absl::InternalError("the message is none of this method's"));
  begun_ = true;
  step();
}

// What came whole and is parsed at once waits nowhere.
void GrpcCall::CountHeld() {
  const size_t held = reader_.held() + waiting_bytes_ + parsing_bytes_;
  if (held == held_) return;
  const bool more = held > held_;
  connection_->held_bytes() += held - held_;  // wraps as it should
  held_ = held;
  if (!hold_) hold_.emplace(services_.bodies);
  hold_->Resize(held);
  if (more && (services_.bodies->over() || connection_->holds_too_much())) RefuseForSize();
}

// While messages wait for the handler, the client's stream is held back by its window.
void GrpcCall::ConsumeWindow() {
  if (!waiting_.empty() || unconsumed_ == 0) return;
  connection_->session().ConsumeOfStream(stream_, std::exchange(unconsumed_, 0));
  connection_->WantsToSend();
}

// ---- answers

void GrpcCall::AddInitialMetadata(std::string name, std::string value) {
  if (!headers_sent_) initial_.emplace_back(std::move(name), std::move(value));
}

void GrpcCall::AddTrailingMetadata(std::string name, std::string value) {
  trailing_.emplace_back(std::move(name), std::move(value));
}

void GrpcCall::SendHeaders() {
  if (std::exchange(headers_sent_, true)) return;
  std::vector<http2::Header> headers = {{":status", "200"},
                                        {"content-type", kContentType},
                                        {"grpc-accept-encoding", http2::kAcceptedEncodings}};
  for (const auto& [name, value] : initial_) headers.push_back({name, value, true});
  connection_->session().Respond(stream_, headers);
}

void GrpcCall::Send(const google::protobuf::MessageLite& message, std::optional<TakenNote> note) {
  if (!open()) return;
  const size_t size = message.ByteSizeLong();
  if (size > services_.limits.max_send_bytes) {
    // Not from inside the handler.
    services_.executor.Post([self = shared_from_this(), size] {
      self->Abort(absl::ResourceExhaustedError(
          "Sent message larger than max (" + std::to_string(size) + " vs. " +
          std::to_string(self->services_.limits.max_send_bytes) + ")"));
    });
    return;
  }
  SendHeaders();
  connection_->session().Write(stream_, http2::kMessagePrefixBytes + size, [&](char* at) {
    http2::PutMessagePrefix(at, size);
    message.SerializeWithCachedSizesToArray(
        reinterpret_cast<uint8_t*>(at + http2::kMessagePrefixBytes));
  });
  sent_ += http2::kMessagePrefixBytes + size;
  if (note) marks_.push_back({sent_, *note});
  connection_->WantsToSend();
}

// For people as over HTTP, and for gRPC's own retries.
void GrpcCall::AddComeBack(const ApiError& error) {
  if (error.retry_after_ms == 0) return;
  AddTrailingMetadata("retry-after", std::to_string((error.retry_after_ms + 999) / 1000));
  AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(error.retry_after_ms));
}

void GrpcCall::Finish(const ApiError& error) {
  AddComeBack(error);
  Finish(ToStatus(error));
}

void GrpcCall::Finish(const absl::Status& status) {
  if (!open()) return;
  finished_ = true;
  http2::Session& session = connection_->session();
  GrpcMetadata trailers;
  if (!headers_sent_ && initial_.empty()) {
    headers_sent_ = true;
    trailers = {{":status", "200"}, {"content-type", std::string(kContentType)}};
    AppendStatus(status, trailers);
    trailers.insert(trailers.end(), trailing_.begin(), trailing_.end());
    session.RespondAndEnd(stream_, ViewsOf(trailers));
  } else {
    SendHeaders();
    AppendStatus(status, trailers);
    trailers.insert(trailers.end(), trailing_.begin(), trailing_.end());
    session.End(stream_, ViewsOf(trailers));
  }
  ReleaseHeld();
  connection_->WantsToSend();
}

void GrpcCall::ReleaseHeld() {
  waiting_.clear();
  marks_.clear();
  waiting_bytes_ = 0;
  connection_->held_bytes() -= std::exchange(held_, 0);
  hold_.reset();
}

void GrpcCall::Cancel() {
  if (std::exchange(begun_, false) && handler_) handler_->OnCancelled();
}

void GrpcCall::Abort(const absl::Status& status) {
  if (!open()) return;
  const auto self = shared_from_this();
  Cancel();
  Finish(status);
}

void GrpcCall::OnDeadline() {
  deadline_timer_ = 0;
  Abort(absl::DeadlineExceededError("Deadline Exceeded"));
}

bool GrpcCall::drained() const { return open() && connection_->session().Queued(stream_) == 0; }

void GrpcCall::OnSent(size_t left) {
  while (!marks_.empty() && marks_.front().end + left <= sent_) {
    connection_->AwaitWritten(shared_from_this(), marks_.front().note);
    marks_.pop_front();
  }
}

void GrpcCall::OnDrained() {
  if (open()) handler_->OnDrained();
}

void GrpcCall::OnTaken(const TakenNote& note) {
  if (open()) handler_->OnTaken(note.whose, note.index);
}

void GrpcCall::OnClosed() {
  if (connection_ == nullptr) return;
  const auto self = shared_from_this();
  if (!std::exchange(finished_, true)) Cancel();
  if (deadline_timer_ != 0) services_.executor.Cancel(std::exchange(deadline_timer_, 0));
  ReleaseHeld();
  connection_ = nullptr;
  handler_.reset();
}

}  // namespace quire
