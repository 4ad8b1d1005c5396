#include "router/http/http_session_asio.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/release.h"
#include "common/runtime/must_wait_asio.h"
#include "router/http/errors.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::beast::error_code;

constexpr size_t kReadChunkBytes = 64u << 10;
constexpr size_t kSessionBytes = 20u << 10;  // of an idle one: 3 KiB, with TLS 17
constexpr size_t kChargeStep = 4096;
// For one request's body on the wire: chunk headers may cost as much again as the body, and this
// much more.
constexpr size_t kWireSlackBytes = 1u << 20;

}  // namespace

HttpSession::HttpSession(EdgeStream stream, HttpShared& shared, std::shared_ptr<ClientSeat> seat,
                         std::function<void()> on_closed)
    : stream_(std::move(stream)),
      shared_(shared),
      services_(shared.services),
      seat_(std::move(seat)),
      on_closed_(std::move(on_closed)),
      memory_(std::make_shared<MemoryAccount>(services_.limits.max_connection_memory_bytes,
                                              services_.memory, MemoryScope::kConnection)),
      own_(memory_),
      waiting_(memory_) {
  own_.Resize(kSessionBytes);
  seat_->at_work = [this] { return state_ == State::kAnswering && access_ != Access::kOpen; };
}

HttpSession::~HttpSession() { QUIRE_CHECK(state_ == State::kClosed && !call_); }

void HttpSession::Start(std::string first_bytes) {
  in_ = std::move(first_bytes);
  SetDeadline(in_.empty() ? services_.limits.idle_timeout : services_.limits.header_timeout);
  Parse();
  Read();
}

size_t HttpSession::ReadLimit() const {
  switch (state_) {
    case State::kAnswering:
      return services_.limits.max_pipelined_bytes;
    case State::kClosed:
      return 0;
    default:
      // The parser needs a whole header, or a whole chunk header, in one piece.
      return services_.limits.max_header_bytes + kReadChunkBytes;
  }
}

// Waits without a buffer, so that an idle connection costs no memory.
void HttpSession::Read() {
  if (reading_ || input_ended_ || in_.size() >= ReadLimit()) return;
  reading_ = true;
  stream_.AwaitBytes(
      [self = shared_from_this()](const error_code& error) { self->OnReadable(error); });
}

void HttpSession::OnReadable(error_code error) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  char buffer[kReadChunkBytes];
  size_t bytes = 0;
  if (!error) bytes = stream_.Read(buffer, sizeof(buffer), error);
  if (bytes == 0 && MustWait(error)) {
    Read();
    return;
  }
  if (bytes == 0) {
    OnInputEnd(error == asio::error::eof);
    return;
  }
  in_.append(buffer, bytes);
  if (state_ == State::kLinger) {
    lingered_bytes_ += bytes;
    in_.clear();
    if (lingered_bytes_ > kMaxLingerBytes) {
      services_.counters.http_lingers_cut.Add();
      Close();
      return;
    }
  } else {
    Parse();
  }
  if (state_ != State::kClosed) own_.Resize(InputBytes());
  Read();
}

void HttpSession::OnInputEnd(bool in_order) {
  input_ended_ = true;
  if (state_ == State::kAnswering && answer_done_ && in_order) {
    keep_alive_ = false;  // it sent a request and its end, and waits for the rest
    return;
  }
  if (state_ == State::kAnswering) services_.counters.client_disconnects.Add();
  Close();
}

// False: refused, since the connection, its tenant or all bodies together hold too many bytes.
bool HttpSession::CountBody(size_t bytes) {
  if (hold_ == nullptr) {
    hold_ = std::make_shared<MemoryHold>(
        memory_,
        MemoryHold::Accounts{services_.bodies, services_.pipeline.MemoryOf(request_.tenant.get())});
  }
  if (hold_->TryResize(bytes)) return true;
  if (&hold_->refuser() == services_.bodies.get()) services_.counters.bodies_refused.Add();
  Refuse(ErrorResponse(TooManyLargeRequests()));
  return false;
}

// The bytes that were read and the parsed head, whose fields are stored about twice.
size_t HttpSession::InputBytes() const {
  const size_t head = parser_ ? head_bytes_ : 0;
  return kSessionBytes + (in_.size() + 2 * head) / kChargeStep * kChargeStep;
}

bool HttpSession::ChargeInput() {
  if (own_.TryResize(InputBytes())) return true;
  Refuse(ErrorResponse(TooManyLargeRequests()));
  return false;
}

// False: the account has no room.
bool HttpSession::ChargeWaiting(size_t more) {
  const size_t bytes = out_.size() + left_.size() + more;
  if (bytes <= waiting_.bytes()) return true;
  return waiting_.TryResize((bytes / kWaitingStep + 1) * kWaitingStep);
}

void HttpSession::BeginHead() {
  state_ = State::kHead;
  SetDeadline(services_.limits.header_timeout);
  parser_.emplace();
  // The head alone: what a client may do is decided before the parser sees trailers, which it
  // treats as more headers.
  parser_->eager(false);
  // HeadTooLong is exact; the parser checks only when a head is incomplete.
  parser_->header_limit(static_cast<uint32_t>(services_.limits.max_header_bytes) + 4);
  parser_->body_limit(services_.limits.max_body_bytes);
  request_ = {};
  request_wire_bytes_ = head_searched_ = head_bytes_ = 0;
  cors_origin_.clear();
  continue_sent_ = false;
}

bool HttpSession::FeedParser() {
  error_code error;
  const size_t used = parser_->put(asio::buffer(in_), error);
  in_.erase(0, used);
  head_searched_ -= std::min(head_searched_, used);
  request_wire_bytes_ += used;
  if (!error || error == beast_http::error::need_more) return true;
  OnParseError(error);
  return false;
}

// Feeds the parser until a request is complete. Runs in kIdle, kHead and kBody.
void HttpSession::Parse() {
  if (state_ == State::kAnswering || state_ == State::kLinger || state_ == State::kClosed) return;
  if (state_ == State::kIdle) {
    // Empty lines before a request may be skipped, and some clients send them.
    const size_t start = in_.find_first_not_of("\r\n");
    in_.erase(0, std::min(start, in_.size()));
    if (in_.empty()) return;
    BeginHead();
  }
  if (state_ == State::kHead) {
    if (HeadTooLong()) return RefuseHead();
    if (!ChargeInput() || !FeedParser() || !parser_->is_header_done() || !CheckHead()) return;
    parser_->eager(true);
    head_bytes_ = request_wire_bytes_;
    if (!ChargeInput()) return;
  }
  if (!in_.empty() && !parser_->is_done() && !FeedParser()) return;
  // A request that came complete at once, and is parsed so, waits nowhere: it is served at any
  // time.
  const size_t bytes = parser_->get().body().size();
  const bool waits = !parser_->is_done() || bytes > services_.limits.background_parse_bytes;
  if (waits && bytes > 0 && !CountBody(bytes)) return;
  if (parser_->is_done()) {
    BeginAnswer();
  } else if (request_wire_bytes_ > 2 * services_.limits.max_body_bytes + kWireSlackBytes) {
    Refuse(413, "the body's chunk headers outweigh the body", "payload_too_large");
  } else if (in_.size() >= services_.limits.max_header_bytes) {
    RefuseHead();  // of a chunk
  }
}

// Bytes of the head that the parser has consumed already, its first line, are in
// request_wire_bytes_.
bool HttpSession::HeadTooLong() {
  constexpr std::string_view kEnd = "\r\n\r\n";
  const size_t end = in_.find(kEnd, head_searched_);
  head_searched_ = in_.size() - std::min(in_.size(), kEnd.size() - 1);
  const size_t here = end == std::string::npos ? in_.size() : end + kEnd.size();
  return request_wire_bytes_ + here > services_.limits.max_header_bytes;
}

void HttpSession::RefuseHead() {
  services_.counters.http_headers_too_large.Add();
  Refuse(431,
         "the headers, or those of a chunk, are larger than the limit of " +
             std::to_string(services_.limits.max_header_bytes) + " bytes (--max-header-bytes)",
         "headers_too_large");
}

void HttpSession::OnParseError(const error_code& error) {
  if (error == beast_http::error::body_limit) {
    services_.counters.http_bodies_too_large.Add();
    ReadTarget();
    Refuse(413,
           "the body is larger than the limit of " +
               std::to_string(services_.limits.max_body_bytes) + " bytes (--max-body-bytes)",
           "payload_too_large");
  } else if (error == beast_http::error::header_limit) {
    RefuseHead();
  } else if (error == beast_http::error::bad_version) {
    Refuse(505, "only HTTP/1.0, HTTP/1.1 and HTTP/2 are served", "bad_request");
  } else {
    Refuse(400, "the request is not HTTP: " + error.message(), "bad_request");
  }
}

// Answers without a call and ends the connection: later bytes on it cannot be assigned to requests
// any more.
void HttpSession::Refuse(int status, std::string_view message, std::string_view code) {
  Refuse(ErrorResponse(status, message, code));
}

void HttpSession::Refuse(HttpResponse response) {
  keep_alive_ = false;
  head_only_ = preflight_ = false;
  answer_begun_ = false;
  answer_done_ = false;
  if (request_id_.empty()) request_id_ = NewRequestId(services_.rng);
  state_ = State::kAnswering;
  parser_.reset();
  hold_.reset();
  Reply(std::move(response));
}

HttpRequest HttpSession::TakeRequest() {
  HttpRequest request = std::exchange(request_, {});
  request.body = std::move(parser_->get().body());
  parser_.reset();
  // A body that is parsed at once waits for nothing.
  if (request.body.size() <= services_.limits.background_parse_bytes) hold_.reset();
  request.hold = std::move(hold_);
  return request;
}

void HttpSession::BeginAnswer() {
  services_.counters.http_requests.Add();
  state_ = State::kAnswering;
  SetDeadline(0);
  answer_begun_ = answer_done_ = chunked_ = false;
  body_queued_ = body_in_flight_ = 0;
  HttpRequest request = TakeRequest();
  if (in_.empty()) Release(in_);  // an answer may take its time
  request_id_ = request.request_id;
  trace_response_.clear();
  head_only_ = request.method == "HEAD";
  preflight_ = request.method == "OPTIONS";
  if (services_.keys != nullptr) services_.keys->CountRequest(request.tenant);
  if (!target_usable_) {
    Reply(ErrorResponse(400, "the request's target is not a path", "bad_request"));
    return;
  }
  call_ = Dispatch(services_, std::move(request), *this);
  QUIRE_CHECK(call_ || answer_done_);
}

void HttpSession::Linger() {
  state_ = State::kLinger;
  in_.clear();
  stream_.EndWriting();
  SetDeadline(services_.limits.linger_timeout);
  if (input_ended_) {
    Close();
    return;
  }
  Read();
}

void HttpSession::StartDraining() {
  keep_alive_ = false;
  if (state_ == State::kIdle) Close();
}

void HttpSession::Close() {
  if (state_ == State::kClosed) return;
  const auto self = shared_from_this();  // on_closed_ may drop the owner's reference
  state_ = State::kClosed;
  seat_->at_work = nullptr;
  hold_.reset();
  call_.reset();
  if (timer_ != 0) services_.executor.Cancel(timer_);
  timer_ = 0;
  stream_.Close();
  if (on_closed_) on_closed_();
  on_closed_ = nullptr;
}

void HttpSession::PostClose() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] { self->Close(); });
}

void HttpSession::SetDeadline(Micros delay) {
  if (delay == 0) {
    deadline_ = 0;
    return;
  }
  deadline_ = services_.executor.clock().Now() + delay;
  // A timer that fires too early checks again; only one that would fire too late is replaced.
  if (timer_ != 0 && timer_due_ <= deadline_) return;
  if (timer_ != 0) services_.executor.Cancel(timer_);
  timer_due_ = deadline_;
  timer_ = services_.executor.PostAt(deadline_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnTimer();
  });
}

void HttpSession::OnTimer() {
  timer_ = 0;
  if (state_ == State::kClosed || deadline_ == 0) return;
  const Micros left = deadline_ - services_.executor.clock().Now();
  if (left > 0) {
    SetDeadline(left);
  } else {
    deadline_ = 0;
    OnDeadline();
  }
}

void HttpSession::OnDeadline() {
  if (state_ == State::kHead || state_ == State::kBody) {
    services_.counters.http_request_timeouts.Add();
    Refuse(408, "the request came too slowly", "request_timeout");
    return;
  }
  if (state_ == State::kAnswering) {
    if (!write_active_) return;
    if (TakesEnough()) return;
    services_.counters.http_write_timeouts.Add();
  } else if (state_ == State::kIdle) {
    services_.counters.http_idle_closed.Add();
  }
  Close();
}

}  // namespace quire
