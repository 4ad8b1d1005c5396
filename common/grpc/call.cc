#include "common/grpc/call.h"

#include <google/protobuf/message_lite.h>

#include <algorithm>
#include <atomic>

#include "absl/strings/cord.h"
#include "common/check.h"
#include "common/grpc/connection.h"
#include "common/grpc/held_memory.h"
#include "common/grpc/status_details.h"
#include "common/grpc/trailers.h"

namespace quire {
namespace {

constexpr std::string_view kContentType = "application/grpc";

using HeaderViews = absl::InlinedVector<http2::Header, 8>;

HeaderViews ViewsOf(const GrpcMetadata& metadata) {
  HeaderViews views;
  for (const auto& [name, value] : metadata) views.push_back({name, value});
  return views;
}

}  // namespace

// The most that a byte of a packed message counts in a turn: its unpacked size is not known before.
constexpr size_t kUnpackedFor1 = 64;

// A message with the background. Owners: the call, and the work (a shared_ptr in each).
struct GrpcCall::Parsing {
  Parsing(std::shared_ptr<GrpcCallHandler> its_handler, Waiting its_message, size_t most_bytes,
          std::shared_ptr<MemoryAccount> account, MemoryHold::Accounts beside)
      : handler(std::move(its_handler)),
        message(std::move(its_message)),
        most(most_bytes),
        bytes(message.bytes.size()),
        hold(std::move(account), std::move(beside)) {}

  void Work() {
    if (cancelled.load(std::memory_order_relaxed)) return;
    if (message.packing != http2::Encoding::kIdentity) {
      absl::StatusOr<std::string> unpacked = http2::Unpack(
          message.packing, message.bytes, {.most = most, .cancelled = &cancelled, .hold = &hold});
      status = unpacked.status();
      if (!unpacked.ok()) return;
      message.bytes = *std::move(unpacked);
      hold.Resize(message.bytes.capacity());
    }
    step = handler->Read(message.bytes);
  }

  const std::shared_ptr<GrpcCallHandler> handler;
  Waiting message;
  const size_t most;
  const size_t bytes;  // as it came
  MemoryHold hold;
  std::atomic<bool> cancelled{false};
  GrpcCallHandler::Step step;
  absl::Status status;  // of unpacking it; UNAVAILABLE: the hold had no room
};

GrpcCall::GrpcCall(GrpcConnection& connection, http2::StreamId stream, GrpcCallHead head)
    : host_(connection.host()),
      connection_(&connection),
      stream_(stream),
      head_(std::move(head)),
      reader_(host_.limits.max_receive_bytes),
      memory_(connection.memory()),
      own_bytes_(kCallBytes + head_.path.size() + HeldBytes(head_.metadata)) {}

GrpcCall::~GrpcCall() { QUIRE_CHECK(connection_ == nullptr && timer_ == 0); }

std::optional<GrpcEnd> GrpcCall::TakeMemory() {
  if (memory_.TryResize(own_bytes_)) return std::nullopt;
  memory_.Resize(own_bytes_);
  return connection_->NoMemory(memory_);
}

void GrpcCall::Begin(const GrpcMethod& method, http2::Encoding encoding) {
  method_ = &method;
  const auto lower = [](auto own, auto most) { return own == 0 ? most : std::min(own, most); };
  max_message_bytes_ = lower(method.max_message_bytes, host_.limits.max_receive_bytes);
  message_timeout_ = lower(method.message_timeout, host_.limits.message_timeout);
  handler_ = method.begin(shared_from_this());
  many_messages_ = begun_ = method.many_messages;
  reader_ = http2::MessageReader(max_message_bytes_, encoding);
  TimeMessage();
  if (head_.deadline != 0) SetTimer(head_.deadline);
}

// ---- messages of the client

void GrpcCall::OnData(std::string_view bytes) {
  if (!open()) {
    connection_->session().Consume(stream_, bytes.size());
    return;
  }
  // The connection's window does not limit what is held: one call may not hold up the others.
  connection_->session().ConsumeOfConnection(stream_, bytes.size());
  unconsumed_ += bytes.size();
  std::string_view message;
  while (reader_.Next(bytes, message)) {
    if (!TakeMessage(message)) return;
  }
  if (!reader_.status().ok()) return AbortReading(absl::Status(reader_.status()));
  CountHeld();
  if (open()) ConsumeWindow();
}

bool GrpcCall::TakeMessage(std::string_view message) {
  if (++messages_ > 1 && !many_messages_) {
    Abort(absl::UnimplementedError("the method takes one message"));
    return false;
  }
  const http2::Encoding packing = message.empty() ? http2::Encoding::kIdentity : reader_.packing();
  waiting_.push_back({reader_.Take(message), packing});
  waiting_bytes_ += waiting_.back().held();
  Pump();
  return open();
}

void GrpcCall::AbortReading(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) host_.counters.messages_too_large.Add();
  Abort(status);
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

// Not from inside its own callbacks: a handler that reads on gets the next message from the call
// that is under way.
void GrpcCall::Pump() {
  if (std::exchange(pumping_, true)) return;
  while (open() && reading_ && parsing_ == nullptr && !waiting_.empty()) {
    if (!connection_->Work(kMessageWork, *this)) break;
    waiting_bytes_ -= waiting_.front().held();
    Waiting message = std::move(waiting_.front());
    waiting_.pop_front();
    Parse(std::move(message));
  }
  const bool idle = parsing_ == nullptr && waiting_.empty();
  if (open() && idle && half_closed_ && !std::exchange(half_close_told_, true)) {
    handler_->OnHalfClose();
  }
  pumping_ = false;
  if (!open()) return;
  CountHeld();
  if (open()) ConsumeWindow();
}

void GrpcCall::Parse(Waiting message) {
  const bool packed = packed_ = message.packing != http2::Encoding::kIdentity;
  const bool is_small = message.bytes.size() <= host_.limits.background_parse_bytes;
  if (host_.background == nullptr || (!packed && is_small)) {
    return RunStep(handler_->Read(message.bytes));
  }
  if (hold_) hold_->Resize(std::min(hold_->bytes(), reader_.held() + waiting_bytes_));
  parsing_ = std::make_shared<Parsing>(handler_, std::move(message), max_message_bytes_,
                                       connection_->memory(), Beside());
  if (!parsing_->hold.TryResize(parsing_->bytes)) {
    return RefuseForSize(parsing_->hold);
  }
  const size_t work =
      packed ? std::min(kUnpackedFor1 * parsing_->bytes, parsing_->most) : parsing_->bytes;
  const WorkShare share{host_.owner ? host_.owner(head_) : "", work,
                        std::shared_ptr<const std::atomic<bool>>(parsing_, &parsing_->cancelled)};
  // `done` ends last: the handler is released on its own thread, the loop.
  const bool queued = host_.background->RunFor(
      share, [parsing = parsing_] { parsing->Work(); },
      [parsing = parsing_, self = shared_from_this()] { self->OnParsed(*parsing); });
  if (queued) return;
  host_.counters.bodies_refused.Add();
  Abort({absl::UnavailableError(AbslView(kTooManyLargeRequests)), kTooManyLargeRequestsRetryMs});
}

void GrpcCall::OnParsed(const Parsing& parsed) {
  if (!open()) return;
  parsing_.reset();
  if (absl::IsUnavailable(parsed.status)) return RefuseForSize(parsed.hold);
  if (!parsed.status.ok()) return AbortReading(parsed.status);
  RunStep(parsed.step);
  Pump();
}

void GrpcCall::RefuseForSize(const MemoryHold& hold) { Abort(connection_->NoMemory(hold)); }

// Where bytes that wait count, beside the connection.
MemoryHold::Accounts GrpcCall::Beside() const {
  MemoryHold::Accounts beside = {host_.bodies};
  if (host_.tenant_memory) beside.push_back(host_.tenant_memory(head_));
  return beside;
}

void GrpcCall::RunStep(const GrpcCallHandler::Step& step) {
  if (!step) return Abort(absl::InternalError("the message is none of this method's"));
  begun_ = true;
  step();
}

// A message that came complete and is parsed at once waits nowhere.
void GrpcCall::CountHeld() {
  const size_t held = reader_.held() + waiting_bytes_;
  if (held == 0 && !hold_) return;
  if (!hold_) hold_.emplace(connection_->memory(), Beside());
  if (!hold_->TryResize(held)) RefuseForSize(*hold_);
}

// While messages wait for the handler, the client's stream is held back by its window.
void GrpcCall::ConsumeWindow() {
  TimeMessage();
  if (!waiting_.empty() || unconsumed_ == 0) return;
  connection_->session().ConsumeOfStream(stream_, std::exchange(unconsumed_, 0));
  connection_->WantsToSend();
}

void GrpcCall::TimeMessage() {
  const bool expected = reader_.in_message() || (messages_ == 0 && !many_messages_);
  if (!expected || !waiting_.empty()) {
    message_due_ = 0;
  } else if (message_due_ == 0) {
    message_due_ = host_.executor.clock().Now() + message_timeout_;
    connection_->AwaitMessage(message_due_);
  }
}

// ---- answers

void GrpcCall::AddInitialMetadata(std::string name, std::string value) {
  if (http2::IsBinary(name)) value = http2::ToBinaryHeader(value);
  if (!headers_sent_) initial_.emplace_back(std::move(name), std::move(value));
}

void GrpcCall::AddTrailingMetadata(std::string name, std::string value) {
  if (http2::IsBinary(name)) value = http2::ToBinaryHeader(value);
  trailing_.emplace_back(std::move(name), std::move(value));
}

void GrpcCall::SendHeaders() {
  if (std::exchange(headers_sent_, true)) return;
  const size_t most = connection_->session().most_sent_header_bytes();
  HeaderViews headers = {{":status", "200"}, {"content-type", kContentType}};
  const size_t needed = headers.size();
  headers.push_back({"grpc-accept-encoding", connection_->encodings()});
  for (const auto& [name, value] : initial_) {
    headers.push_back({name, value, true});  // they differ each time
  }
  while (headers.size() > needed && HeaderListBytes(headers) > most) headers.pop_back();
  if (HeaderListBytes(headers) > most) return ResetUnsent();
  connection_->session().Respond(stream_, headers);
}

// The client does not accept even the shortest answer of a call.
void GrpcCall::ResetUnsent() {
  connection_->session().Reset(stream_, http2::ErrorCode::kInternalError);
  connection_->WantsToSend();
}

void GrpcCall::Send(const google::protobuf::MessageLite& message, std::optional<TakenNote> note) {
  if (!open()) return;
  Write(message.ByteSizeLong(),
        [&](char* at) { message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(at)); });
  if (note && unsent_.ok()) marks_.push_back({sent_, *note});
}

void GrpcCall::SendBytes(std::string_view message) {
  if (!open()) return;
  Write(message.size(), [&](char* at) { message.copy(at, message.size()); });
}

void GrpcCall::Write(size_t size, absl::FunctionRef<void(char*)> fill) {
  if (!unsent_.ok()) return;
  if (size > host_.limits.max_send_bytes) {
    return EndUnsent(absl::ResourceExhaustedError(
        AbslView("Sent message larger than max (" + std::to_string(size) + " vs. " +
                 std::to_string(host_.limits.max_send_bytes) + ")")));
  }
  if (!ChargeAnswers(queued() + http2::kMessagePrefixBytes + size, held_answers_)) return;
  SendHeaders();
  connection_->session().Write(stream_, http2::kMessagePrefixBytes + size, [&](char* at) {
    http2::PutMessagePrefix(at, size);
    fill(at + http2::kMessagePrefixBytes);
  });
  sent_ += http2::kMessagePrefixBytes + size;
  connection_->WantsToSend();
}

// Not from inside the handler, which may finish the call by itself before.
void GrpcCall::EndUnsent(absl::Status why) {
  if (!unsent_.ok()) return;
  unsent_ = std::move(why);
  host_.executor.Post([self = shared_from_this()] { self->Abort(self->unsent_); });
}

bool GrpcCall::ChargeAnswers(size_t queued, size_t held) {
  if (!memory_.TryResize(own_bytes_ + queued + held)) {
    EndUnsent(connection_->NoMemory(memory_).status);
    return false;
  }
  held_answers_ = held;
  return true;
}

bool GrpcCall::CountFor(std::shared_ptr<MemoryAccount> tenant) {
  if (!open() || memory_.TryCountBeside(std::move(tenant))) return true;
  EndUnsent(connection_->NoMemory(memory_).status);
  return false;
}

bool GrpcCall::HoldAnswers(size_t bytes) {
  return bytes == held_answers_ || !open() || ChargeAnswers(queued(), bytes);
}

size_t GrpcCall::queued() const {
  return connection_ == nullptr ? 0 : connection_->session().Queued(stream_);
}

void GrpcCall::Finish(const GrpcEnd& end) {
  if (!open()) return;
  if (end.status.ok() && !unsent_.ok()) return Finish(unsent_);
  // For people, as over HTTP, and for gRPC's own retries.
  if (end.retry_after_ms > 0) {
    AddTrailingMetadata("retry-after", std::to_string((end.retry_after_ms + 999) / 1000));
    AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(end.retry_after_ms));
  }
  finished_ = true;
  message_due_ = 0;
  absl::Status status = end.status;
  if (!status.GetPayload(AbslView(http2::kStatusDetails)).has_value()) {
    AddDetails({.retry_after_ms = end.retry_after_ms}, status);
  }
  SendTrailers(status);
  ReleaseHeld();
  AwaitTaker();
  connection_->WantsToSend();
}

void GrpcCall::SendTrailers(const absl::Status& status) {
  http2::Session& session = connection_->session();
  const bool alone = !headers_sent_ && initial_.empty();
  GrpcMetadata trailers;
  if (alone) trailers = {{":status", "200"}, {"content-type", std::string(kContentType)}};
  AppendStatus(status, trailers);
  trailers.insert(trailers.end(), trailing_.begin(), trailing_.end());
  if (!FitTrailers(status, session.most_sent_header_bytes(), trailers)) return ResetUnsent();
  if (alone) {
    headers_sent_ = true;
    return session.RespondAndEnd(stream_, ViewsOf(trailers));
  }
  SendHeaders();
  session.End(stream_, ViewsOf(trailers));
}

void GrpcCall::Reset() {
  if (!open()) return;
  finished_ = true;
  message_due_ = 0;
  ReleaseHeld();
  connection_->session().Reset(stream_, http2::ErrorCode::kCancel);
  connection_->WantsToSend();
}

void GrpcCall::ReleaseHeld() {
  waiting_.clear();
  marks_.clear();
  waiting_bytes_ = 0;
  if (parsing_ != nullptr) parsing_->cancelled.store(true, std::memory_order_relaxed);
  parsing_.reset();
  hold_.reset();
}

void GrpcCall::Cancel() {
  if (std::exchange(begun_, false) && handler_) handler_->OnCancelled();
}

void GrpcCall::Abort(const GrpcEnd& end) {
  if (!open()) return;
  const auto self = shared_from_this();
  Finish(end);
  Cancel();  // the client gets nothing of what its handler does now
}

void GrpcCall::SetTimer(Micros due) {
  if (timer_ != 0) host_.executor.Cancel(timer_);
  timer_ = host_.executor.PostAt(due, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnTimer();
  });
}

void GrpcCall::OnTimer() {
  timer_ = 0;
  if (open()) return Abort(absl::DeadlineExceededError("Deadline Exceeded"));
  if (connection_ == nullptr || not_taken_ == 0) return;
  http2::Session& session = connection_->session();
  const size_t step = host_.limits.write_step_bytes;
  if (session.Queued(stream_) + step <= not_taken_) return AwaitTaker();
  host_.counters.write_timeouts.Add();
  session.Reset(stream_, http2::ErrorCode::kCancel);
  connection_->WantsToSend();
}

// Output that a client takes at once is gone before this check.
void GrpcCall::AwaitTaker() {
  not_taken_ = connection_->session().Queued(stream_);
  if (not_taken_ > 0) SetTimer(host_.executor.clock().Now() + host_.limits.write_timeout);
}

void GrpcCall::OnMessageTimeout() {
  host_.counters.message_timeouts.Add();
  const auto limit_ms = message_timeout_ / kMicrosPerMilli;
  Abort(absl::DeadlineExceededError(
      AbslView("the client's message came too slowly: it must be whole within " +
               std::to_string(limit_ms) + " ms" + host_.limit_names.message_time)));
}

bool GrpcCall::drained() const { return open() && connection_->session().Queued(stream_) == 0; }

void GrpcCall::OnSent(size_t left) {
  memory_.Resize(own_bytes_ + left + held_answers_);
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
  if (timer_ != 0) host_.executor.Cancel(std::exchange(timer_, 0));
  ReleaseHeld();
  memory_.Resize(own_bytes_);
  connection_ = nullptr;
  handler_.reset();
}

}  // namespace quire
