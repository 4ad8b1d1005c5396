#include "common/grpc/connection.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/grpc/held_memory.h"
#include "common/grpc/read_head.h"
#include "common/release.h"

namespace quire {
namespace {

constexpr uint64_t kKeepAlivePing = 0x6b656570;
constexpr uint64_t kNoticePing = 0x6c656176;
// The guard counts these itself.
constexpr uint64_t kNoResetLimit = 1u << 30;
constexpr uint32_t kMaxContinuations = 1u << 10;

http2::Settings SettingsOf(const GrpcLimits& limits) {
  http2::Settings settings;
  settings.max_concurrent_streams = limits.max_concurrent_streams;
  settings.stream_window_bytes = limits.stream_window_bytes;
  settings.connection_window_bytes = limits.connection_window_bytes;
  settings.max_header_list_bytes = limits.max_metadata_bytes;
  settings.max_continuations = kMaxContinuations;
  settings.reset_burst = settings.resets_per_second = kNoResetLimit;
  return settings;
}

// Broken input is reported as such; every other limit means too much of something.
http2::ErrorCode CodeOfVerdict(std::string_view limit) {
  if (limit == "preface" || limit == "interrupted_headers" || limit == "stray_continuation") {
    return http2::ErrorCode::kProtocolError;
  }
  return limit == "frame_size" ? http2::ErrorCode::kFrameSizeError
                               : http2::ErrorCode::kEnhanceYourCalm;
}

// The text by which gRPC's clients know that they must ping less often.
std::string_view DebugOfVerdict(std::string_view limit) {
  return limit == "pings" ? "too_many_pings" : limit;
}

}  // namespace

GrpcConnection::GrpcConnection(GrpcHost& host, const GrpcMethods& methods, Transport& transport)
    : host_(host),
      methods_(methods),
      transport_(transport),
      session_(http2::Session::Side::kServer, SettingsOf(host.limits), *this),
      guard_(host.limits.guard, host.executor.clock().Now()),
      memory_(std::make_shared<MemoryAccount>(host.limits.max_connection_memory_bytes, host.memory,
                                              MemoryScope::kConnection)),
      own_memory_(memory_) {
  own_memory_.Resize(kConnectionBytes);
}

GrpcConnection::~GrpcConnection() { QUIRE_CHECK(closed_ && calls_.empty()); }

void GrpcConnection::Start() {
  heard_at_ = idle_since_ = host_.executor.clock().Now();
  if (const Micros age = host_.limits.max_connection_age; age > 0) {
    ages_at_ = heard_at_ + age - age / 10;
    const auto spread = static_cast<uint64_t>(age / 5);
    if (host_.rng != nullptr) ages_at_ += static_cast<Micros>(host_.rng->Next() % (spread + 1));
  }
  SetTimer();
  WantsToSend();
}

// ---- bytes

void GrpcConnection::Receive(std::string_view bytes) {
  if (doomed_ || closed_) return;
  heard_at_ = host_.executor.clock().Now();
  if (std::exchange(pinged_at_, 0) != 0) SetTimer();
  if (behind()) {
    rest_.append(bytes);
    return ChargeOwn();
  }
  turn_work_ = 0;
  Take(bytes);
}

// Frame by frame, as long as this turn has work for them.
void GrpcConnection::Take(std::string_view bytes) {
  while (!bytes.empty() && !doomed_ && turn_work_ < host_.limits.turn_work_bytes) {
    std::string_view piece = bytes;
    const char* limit = guard_.InspectNext(bytes, heard_at_);
    piece.remove_suffix(bytes.size());
    turn_work_ += kFrameWork + piece.size();
    if (limit != nullptr) {
      Doom(limit);
    } else if (const absl::Status status = session_.Receive(piece); guard_.verdict() != nullptr) {
      Doom(guard_.verdict());
    } else if (!status.ok()) {
      host_.log.Info("an HTTP/2 connection is closed", {{"error", StatusMessage(status)}});
      doomed_ = true;
    }
  }
  if (closed_ || doomed_) bytes = {};
  rest_.assign(bytes);
  ChargeOwn();
  if (behind()) ContinueLater();
  CountRefusedStreams();
  WantsToSend();
}

void GrpcConnection::ChargeOwn() {
  own_memory_.Resize(kConnectionBytes + rest_.size() + refusals_.size() * kCallBytes);
}

void GrpcConnection::Doom(const char* limit) {
  host_.log.Info("an HTTP/2 connection went past a limit and is closed", {{"limit", limit}});
  host_.counters.guard_closed.at(limit)->Add();
  doomed_ = true;
  session_.Terminate(CodeOfVerdict(limit), DebugOfVerdict(limit));
}

// A stream that is reset because of the client costs as much as the client's own reset. Resets that
// this side chooses cost nothing, nor does that of a stream over the limit, for which no work was
// begun: clients open any number until they have read our SETTINGS.
void GrpcConnection::OnResetSent(http2::ErrorCode code) {
  using http2::ErrorCode;
  const bool wished = code == ErrorCode::kNoError || code == ErrorCode::kCancel ||
                      code == ErrorCode::kRefusedStream;
  if (!wished) guard_.SentReset(host_.executor.clock().Now());
}

bool GrpcConnection::OnDecoded(size_t bytes) {
  turn_work_ += bytes;
  return guard_.Decoded(bytes, heard_at_) == nullptr;
}

bool GrpcConnection::Work(size_t cost, GrpcCall& call) {
  if (turn_work_ >= host_.limits.turn_work_bytes) {
    pumped_later_.push_back(call.shared_from_this());
    ContinueLater();
    return false;
  }
  turn_work_ += cost;
  return true;
}

void GrpcConnection::ContinueLater() {
  if (!turn_.running() && !closed_) turn_.SetIn(0, [this] { NextTurn(); });
}

void GrpcConnection::NextTurn() {
  turn_work_ = 0;
  for (const auto& call : std::exchange(pumped_later_, {})) call->PumpOn();
  const std::string bytes = std::exchange(rest_, {});
  if (closed_ || bytes.empty()) return;
  Take(bytes);
  if (!behind() && !closed_) transport_.ReadOn();
}

void GrpcConnection::CountRefusedStreams() {
  const uint64_t refused = session_.streams_refused();
  host_.counters.streams_over_limit.Add(refused - std::exchange(streams_refused_, refused));
}

void GrpcConnection::WantsToSend() {
  if (told_to_send_ || closed_ || (!session_.wants_to_send() && !over())) return;
  told_to_send_ = true;
  transport_.WantsToSend();
}

// A call that has drained may continue to write: its output then leaves in one piece with the rest.
void GrpcConnection::Send(std::string& out, size_t most) {
  told_to_send_ = true;
  do {
    const size_t before = out.size();
    const size_t known = notes_.size();
    session_.Send(out, most);
    sent_bytes_ += out.size() - before;
    for (size_t i = known; i < notes_.size(); ++i) notes_[i].end = sent_bytes_;
    for (const std::shared_ptr<GrpcCall>& call : std::exchange(drained_, {})) call->OnDrained();
  } while (out.size() < most && session_.wants_to_send());
  told_to_send_ = false;
}

void GrpcConnection::OnSent(http2::StreamId stream, size_t left) {
  const std::shared_ptr<GrpcCall> call = Find(stream);
  if (call == nullptr) return;
  call->OnSent(left);
  if (left == 0) drained_.push_back(call);
}

void GrpcConnection::AwaitWritten(std::shared_ptr<GrpcCall> call, GrpcCall::TakenNote note) {
  notes_.push_back({sent_bytes_, std::move(call), note});
}

void GrpcConnection::Written(size_t bytes) {
  written_bytes_ += bytes;
  while (!notes_.empty() && notes_.front().end <= written_bytes_) {
    const Note note = std::move(notes_.front());
    notes_.pop_front();
    note.call->OnTaken(note.note);
  }
}

void GrpcConnection::OnFrameSent(uint8_t type, uint8_t flags) {
  guard_.Sent({.type = type, .flags = flags});
}

bool GrpcConnection::over() const {
  return session_.over() || (doomed_ && !session_.wants_to_send());
}

// ---- calls

std::shared_ptr<GrpcCall> GrpcConnection::Find(http2::StreamId stream) const {
  const auto found = calls_.find(stream);
  return found == calls_.end() ? nullptr : found->second;
}

std::string_view GrpcConnection::encodings() const {
  return host_.background == nullptr ? std::string_view("identity") : http2::kAcceptedEncodings;
}

void GrpcConnection::RefuseByHttp(http2::StreamId stream, int status) {
  const std::string text = std::to_string(status);
  std::vector<http2::Header> headers = {{":status", text}};
  if (status == 405) headers.push_back({"allow", "POST"});
  session_.RespondAndEnd(stream, headers);
}

void GrpcConnection::OnHeaders(http2::StreamId stream, const http2::HeaderBlock& block) {
  if (closed_) return;
  if (block.trailers) return RefuseWaiting(stream);
  const std::string_view method = http2::Find(block.fields, ":method").value_or("");
  const std::string_view type = http2::Find(block.fields, "content-type").value_or("");
  if (!block.too_large && (method != "POST" || !IsGrpc(type))) {
    const std::string_view path = http2::Find(block.fields, ":path").value_or("");
    const bool served = methods_.Find(path) != nullptr;
    const int status = !served && !IsGrpc(type) ? 404 : method != "POST" ? 405 : 415;
    if (block.ends) return RefuseByHttp(stream, status);
    if (refusals_.empty()) refusals_due_ = heard_at_ + host_.limits.message_timeout;
    refusals_.emplace(stream, status);
    ChargeOwn();
    return AwaitMessage(refusals_due_);
  }
  GrpcCallHead head = HeadOf(block, heard_at_);
  Beginning beginning = BeginningOf(head, block);
  if (beginning.refusal || !beginning.method->keeps_metadata) Release(head.metadata);
  auto call = std::make_shared<GrpcCall>(*this, stream, std::move(head));
  calls_.emplace(stream, call);
  if (std::optional<GrpcEnd> full = call->TakeMemory(); full && !beginning.refusal) {
    beginning.refusal = std::move(full);
  }
  if (!beginning.refusal) return call->Begin(*beginning.method, beginning.encoding);
  if (beginning.names_encodings) {
    call->AddTrailingMetadata("grpc-accept-encoding", std::string(encodings()));
  }
  call->Finish(*beginning.refusal);
}

GrpcConnection::Beginning GrpcConnection::BeginningOf(const GrpcCallHead& head,
                                                      const http2::HeaderBlock& block) {
  Beginning beginning;
  const auto refuse = [&](GrpcEnd end) {
    beginning.refusal = std::move(end);
    return std::move(beginning);
  };
  if (block.too_large) {
    host_.counters.metadata_too_large.Add();
    return refuse(absl::ResourceExhaustedError(AbslView(
        "received metadata size exceeds the limit of " +
        std::to_string(host_.limits.max_metadata_bytes) + " bytes" + host_.limit_names.metadata)));
  }
  if (host_.refuse) {
    if (auto problem = host_.refuse(head, *seat_)) return refuse(*std::move(problem));
  }
  const GrpcMethod* method = beginning.method = methods_.Find(head.path);
  if (method == nullptr) {
    return refuse(absl::UnimplementedError(
        AbslView(head.path.substr(0, 128) + " is not served; server reflection lists what is")));
  }
  const std::string_view encoding = head.Find("grpc-encoding");
  const auto known = http2::EncodingOf(encoding);
  if (!known || (*known != http2::Encoding::kIdentity && host_.background == nullptr)) {
    beginning.names_encodings = true;
    return refuse(absl::UnimplementedError(
        AbslView("grpc-encoding: \"" + std::string(encoding.substr(0, 64)) +
                 "\" is not known; these are: " + std::string(encodings()))));
  }
  beginning.encoding = *known;
  if (absl::Status problem = CheckHead(head); !problem.ok()) return refuse(std::move(problem));
  if (method->max_per_connection == 0 || CallsOf(*method) < method->max_per_connection) {
    return beginning;
  }
  host_.counters.method_calls_refused.Add();
  return refuse(absl::ResourceExhaustedError(
      AbslView(head.path + ": " + std::to_string(method->max_per_connection) +
               " calls of it run on this connection, its limit; end one of them first")));
}

size_t GrpcConnection::CallsOf(const GrpcMethod& method) const {
  return static_cast<size_t>(std::count_if(calls_.begin(), calls_.end(), [&](const auto& entry) {
    return entry.second->method() == &method;
  }));
}

GrpcEnd GrpcConnection::NoMemory(const MemoryHold& hold) {
  const MemoryAccount& refuser = hold.refuser();
  const std::string limit = std::to_string(refuser.limit());
  switch (refuser.scope()) {
    case MemoryScope::kConnection:
      return {absl::ResourceExhaustedError(
                  AbslView("this connection's calls hold " + limit + " bytes, its limit" +
                           host_.limit_names.connection_memory +
                           "; read their answers first, or send less at once")),
              kTooManyLargeRequestsRetryMs};
    case MemoryScope::kTenant:
      return {absl::ResourceExhaustedError(
                  AbslView("this tenant's requests hold " + limit + " bytes, its limit" +
                           host_.limit_names.tenant_memory + "; let some of them end first")),
              kTooManyLargeRequestsRetryMs};
    case MemoryScope::kWaiting:
      host_.counters.bodies_refused.Add();
      return {absl::UnavailableError(AbslView(kTooManyLargeRequests)),
              kTooManyLargeRequestsRetryMs};
    case MemoryScope::kProcess:
      break;
  }
  return {absl::UnavailableError(AbslView("clients hold all the memory that is for them" +
                                          host_.limit_names.client_memory + "; try again shortly")),
          kTooManyLargeRequestsRetryMs};
}

void GrpcConnection::OnData(http2::StreamId stream, std::string_view bytes) {
  if (const auto call = Find(stream)) return call->OnData(bytes);
  RefuseWaiting(stream);
  session_.Consume(stream, bytes.size());
}

void GrpcConnection::OnEnd(http2::StreamId stream) {
  if (const auto call = Find(stream)) return call->OnEnd();
  RefuseWaiting(stream);
}

void GrpcConnection::RefuseWaiting(http2::StreamId stream) {
  const auto found = refusals_.find(stream);
  if (found == refusals_.end()) return;
  const int status = found->second;
  refusals_.erase(found);
  ChargeOwn();
  RefuseByHttp(stream, status);
  WantsToSend();
}

void GrpcConnection::OnClosed(http2::StreamId stream, http2::ErrorCode) {
  if (refusals_.erase(stream) > 0) ChargeOwn();
  const auto found = calls_.find(stream);
  if (found == calls_.end()) return;
  const std::shared_ptr<GrpcCall> call = std::move(found->second);
  calls_.erase(found);
  call->OnClosed();
  if (!calls_.empty() || closed_) return;
  idle_since_ = host_.executor.clock().Now();
  SetTimer();
}

void GrpcConnection::CancelCalls(const absl::Status& status) {
  const auto calls = calls_;
  for (const auto& [stream, call] : calls) call->Abort(status);
  SayWhichWasLast();
}

// ---- its end

void GrpcConnection::Leave() {
  if (leaving_ || closed_) return;
  leaving_ = true;
  noticed_at_ = host_.executor.clock().Now();
  session_.GiveNotice();
  // Calls that the client begins before it reads the notice arrive before its answer to this ping.
  session_.Ping(kNoticePing);
  SetTimer();
  WantsToSend();
}

void GrpcConnection::SayWhichWasLast() {
  if (std::exchange(went_away_, true)) return;
  leaving_ = true;
  session_.GoAway(http2::ErrorCode::kNoError);
  WantsToSend();
}

void GrpcConnection::OnPingAnswered(uint64_t payload) {
  if (payload == kNoticePing && leaving_) SayWhichWasLast();
}

void GrpcConnection::Close() {
  if (std::exchange(closed_, true)) return;
  timer_.Stop();
  turn_.Stop();
  pumped_later_.clear();
  Release(rest_);
  refusals_.clear();
  notes_.clear();
  drained_.clear();
  const auto calls = std::exchange(calls_, {});
  for (const auto& [stream, call] : calls) call->OnClosed();
}

// ---- time

Micros GrpcConnection::Due() const {
  const GrpcLimits& limits = host_.limits;
  Micros due = pinged_at_ != 0 ? pinged_at_ + limits.ping_timeout : heard_at_ + limits.keep_alive;
  if (calls_.empty() && !leaving_) due = std::min(due, idle_since_ + limits.idle_timeout);
  if (leaving_ && !went_away_) due = std::min(due, noticed_at_ + limits.notice_timeout);
  for (const Micros aged : {ages_at_, ends_at_}) {
    if (aged != 0) due = std::min(due, aged);
  }
  if (!refusals_.empty()) due = std::min(due, refusals_due_);
  for (const auto& [stream, call] : calls_) {
    if (call->message_due() != 0) due = std::min(due, call->message_due());
  }
  return due;
}

// By default the timer runs often enough: a call needs none of its own.
void GrpcConnection::AwaitMessage(Micros due) {
  if (!timer_.running() || due < timer_.due()) SetTimer();
}

void GrpcConnection::EndSlowCalls(Micros now) {
  while (!refusals_.empty() && now >= refusals_due_) RefuseWaiting(refusals_.begin()->first);
  const auto calls = calls_;
  for (const auto& [stream, call] : calls) {
    if (call->message_due() != 0 && now >= call->message_due()) call->OnMessageTimeout();
  }
}

void GrpcConnection::LeaveIfAged(Micros now) {
  if (ages_at_ != 0 && now >= ages_at_) {
    ages_at_ = 0;
    const Micros grace = host_.limits.max_connection_age_grace;
    if (!leaving_ && grace > 0) ends_at_ = now + grace;
    if (!leaving_) host_.counters.aged.Add();
    Leave();
  }
  if (ends_at_ == 0 || now < ends_at_) return;
  ends_at_ = 0;
  CancelCalls(absl::UnavailableError("this connection has reached its age; ask again on another"));
}

// A timer that fires too early checks again; only one that would fire too late is replaced.
void GrpcConnection::SetTimer() {
  const Micros due = Due();
  if (closed_ || (timer_.running() && timer_.due() <= due)) return;
  timer_.Set(due, [this] { OnTimer(); });
}

void GrpcConnection::OnTimer() {
  const GrpcLimits& limits = host_.limits;
  const Micros now = host_.executor.clock().Now();
  if (pinged_at_ != 0 && now >= pinged_at_ + limits.ping_timeout) return transport_.GiveUp();
  if (pinged_at_ == 0 && now >= heard_at_ + limits.keep_alive) {
    pinged_at_ = now;
    session_.Ping(kKeepAlivePing);
    WantsToSend();
  }
  if (!leaving_ && calls_.empty() && now >= idle_since_ + limits.idle_timeout) {
    host_.counters.idle_closed.Add();
    Leave();
  }
  if (leaving_ && !went_away_ && now >= noticed_at_ + limits.notice_timeout) SayWhichWasLast();
  EndSlowCalls(now);
  LeaveIfAged(now);
  SetTimer();
}

}  // namespace quire
