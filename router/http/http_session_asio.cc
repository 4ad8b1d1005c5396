#include "router/http/http_session_asio.h"

#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/trace/context.h"
#include "router/http/errors.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::beast::error_code;

constexpr size_t kReadChunkBytes = 64u << 10;
constexpr size_t kMaxLingerBytes = 4u << 20;
constexpr size_t kMaxRequestIdBytes = 128;
// Of one request's body on the wire: chunk headers may cost as much again as the body, and this
// much more.
constexpr size_t kWireSlackBytes = 1u << 20;

std::string_view StdView(boost::beast::string_view s) { return {s.data(), s.size()}; }

bool UsableRequestId(std::string_view id) {
  if (id.empty() || id.size() > kMaxRequestIdBytes) return false;
  return std::all_of(id.begin(), id.end(),
                     [](char c) { return c > 0x20 && c < 0x7F && c != '"' && c != '\\'; });
}

std::string NewRequestId(Rng& rng) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string id(32, '0');
  for (size_t half = 0; half < 2; ++half) {
    uint64_t bits = rng.Next();
    for (size_t i = 0; i < 16; ++i, bits >>= 4) id[16 * half + i] = kHex[bits & 15];
  }
  return id;
}

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return boost::beast::iequals({a.data(), a.size()}, {b.data(), b.size()});
}

// Without any credential.
bool IsOpen(const HttpServices& services, Access access) {
  switch (access) {
    case Access::kOpen:
      return true;
    case Access::kKey:
      return services.keys == nullptr;
    case Access::kOperator:
      return services.fleet_is_open;
    case Access::kMetrics:
      return services.metrics_are_open;
  }
  return false;
}

}  // namespace

HttpSession::HttpSession(Socket socket, HttpShared& shared, std::function<void()> on_closed)
    : socket_(std::move(socket)),
      shared_(shared),
      services_(shared.services),
      on_closed_(std::move(on_closed)) {}

HttpSession::~HttpSession() { QUIRE_CHECK(state_ == State::kClosed && !call_); }

void HttpSession::Start(std::string first_bytes) {
  in_ = std::move(first_bytes);
  error_code ignored;
  socket_.non_blocking(true, ignored);
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
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
    self->OnReadable(error);
  });
}

void HttpSession::OnReadable(error_code error) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  char buffer[kReadChunkBytes];
  size_t bytes = 0;
  if (!error) bytes = socket_.read_some(asio::buffer(buffer), error);
  if (error == asio::error::would_block || error == asio::error::interrupted) {
    Read();
    return;
  }
  if (error) {
    OnInputEnd(error == asio::error::eof);
    return;
  }
  in_.append(buffer, bytes);
  if (state_ == State::kLinger) {
    lingered_bytes_ += bytes;
    in_.clear();
    if (lingered_bytes_ > kMaxLingerBytes) {
      Close();
      return;
    }
  } else {
    Parse();
  }
  Read();
}

void HttpSession::OnInputEnd(bool in_order) {
  input_ended_ = true;
  if (state_ == State::kAnswering && answer_done_ && in_order) {
    keep_alive_ = false;  // it asked, said that it was done, and waits for the rest
    return;
  }
  if (state_ == State::kAnswering) services_.counters.client_disconnects.Add();
  Close();
}

// False: refused, since all bodies together have too many bytes.
bool HttpSession::CountBody(size_t bytes) {
  if (hold_ == nullptr) hold_ = std::make_shared<MemoryHold>(services_.bodies);
  hold_->Resize(bytes);
  if (!services_.bodies->over()) return true;
  services_.counters.bodies_refused.Add();
  Refuse(ErrorResponse(TooManyLargeRequests()));
  return false;
}

void HttpSession::BeginHead() {
  state_ = State::kHead;
  SetDeadline(services_.limits.header_timeout);
  parser_.emplace();
  // The head by itself: what a client may do is decided before the parser sees trailers, which it
  // takes for more headers.
  parser_->eager(false);
  // HeadTooLong is exact; the parser looks only when a head is not whole.
  parser_->header_limit(static_cast<uint32_t>(services_.limits.max_header_bytes) + 4);
  parser_->body_limit(services_.limits.max_body_bytes);
  request_ = {};
  request_wire_bytes_ = head_searched_ = 0;
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

// Feeds the parser until a request is whole. Runs in kIdle, kHead and kBody.
void HttpSession::Parse() {
  if (state_ == State::kAnswering || state_ == State::kLinger || state_ == State::kClosed) return;
  if (state_ == State::kIdle) {
    // Empty lines before a request are allowed to be skipped, and some clients send them.
    const size_t start = in_.find_first_not_of("\r\n");
    in_.erase(0, std::min(start, in_.size()));
    if (in_.empty()) return;
    BeginHead();
  }
  if (state_ == State::kHead) {
    if (HeadTooLong()) return RefuseHead();
    if (!FeedParser() || !parser_->is_header_done() || !CheckHead()) return;
    parser_->eager(true);
  }
  if (!in_.empty() && !parser_->is_done() && !FeedParser()) return;
  // What came whole at once, and is parsed so, waits nowhere: it is served at any time.
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

// Bytes of the head that the parser has taken already, its first line, are in request_wire_bytes_.
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

void HttpSession::ReadOrigin() {
  cors_origin_.clear();
  const std::string_view origin = StdView(parser_->get()[beast_http::field::origin]);
  if (origin.empty()) return;
  for (const std::string& allowed : services_.cors_origins) {
    if (allowed == "*" || allowed == origin) {
      cors_origin_ = allowed;
      return;
    }
  }
}

void HttpSession::RefuseForOperators(Access access) {
  std::string_view why =
      "the fleet is for operators: start the router with --admin-port and --admin-token-file, and "
      "bring that token";
  if (access == Access::kMetrics) {
    why =
        "metrics name tenants, and are not for whoever reaches this port: start the router with "
        "--metrics-port and ask there, or with --admin-port and --admin-token-file, and bring that "
        "token";
  }
  Refuse(403, why, "operators_only");
}

// Before the body is read: whoever may not come in costs no more than a header.
bool HttpSession::Authorize() {
  const auto& head = parser_->get();
  const Access access = target_usable_ ? AccessOf(*services_.routes, request_.path) : Access::kKey;
  if (IsOpen(services_, access)) return true;
  const bool of_operators = access == Access::kOperator || access == Access::kMetrics;
  KeyRing* const keys = of_operators ? services_.operators : services_.keys;
  if (keys == nullptr && of_operators) {
    RefuseForOperators(access);
    return false;
  }
  // A browser asks before it sends a key.
  if (head.method() == beast_http::verb::options && !cors_origin_.empty()) return true;
  const size_t authorizations = head.count(beast_http::field::authorization);
  const size_t tenants = head.count("x-quire-tenant");
  Result<KeyRing::Tenant> tenant =
      keys->Authenticate({StdView(head[beast_http::field::authorization]),
                          StdView(head["x-quire-tenant"]), authorizations > 1 || tenants > 1});
  if (tenant.ok()) {
    if (!of_operators) request_.tenant = std::move(tenant.value());
    return true;
  }
  HttpResponse response = ErrorResponse(tenant.error());
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  Refuse(std::move(response));
  return false;
}

bool HttpSession::CheckHead() {
  ReadHead();
  ReadOrigin();
  if (!CheckFraming() || !Authorize()) return false;
  const auto& head = parser_->get();
  const std::string_view expect = StdView(head[beast_http::field::expect]);
  if (!expect.empty() && !http10_ && !parser_->is_done() && in_.empty() && !continue_sent_) {
    continue_sent_ = true;
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    StartWrite();
  }
  return true;
}

bool HttpSession::CheckFraming() {
  const auto& head = parser_->get();
  http10_ = head.version() < 11;
  keep_alive_ = parser_->keep_alive();
  state_ = State::kBody;
  SetDeadline(services_.limits.body_timeout);
  const size_t encodings = head.count(beast_http::field::transfer_encoding);
  if (encodings > 0) {
    if (http10_ || encodings > 1) {
      Refuse(400, "Transfer-Encoding is not understood here", "bad_request");
      return false;
    }
    if (!EqualsIgnoringCase(StdView(head[beast_http::field::transfer_encoding]), "chunked")) {
      Refuse(501, "Transfer-Encoding: only chunked is served", "unsupported");
      return false;
    }
  }
  const std::string_view coding = StdView(head[beast_http::field::content_encoding]);
  if (!coding.empty() && !EqualsIgnoringCase(coding, "identity")) {
    Refuse(415, "Content-Encoding: only identity is served, send the body uncompressed",
           "unsupported");
    return false;
  }
  if (!http10_ && head.count(beast_http::field::host) != 1) {
    Refuse(400, "HTTP/1.1 requests need one Host header", "bad_request");
    return false;
  }
  const std::string_view expect = StdView(head[beast_http::field::expect]);
  if (!expect.empty() && !EqualsIgnoringCase(expect, "100-continue")) {
    Refuse(417, "Expect: only 100-continue is served", "unsupported");
    return false;
  }
  return true;
}

void HttpSession::OnParseError(const error_code& error) {
  if (error == beast_http::error::body_limit) {
    services_.counters.http_bodies_too_large.Add();
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

// Answers without a call and ends the connection: what follows on it cannot be told apart any more.
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

void HttpSession::ReadHead() {
  const auto& head = parser_->get();
  HttpRequest& request = request_;
  request.method = std::string(StdView(head.method_string()));
  target_usable_ = PathOfTarget(StdView(head.target()), request.path);
  const std::string_view id = StdView(head["x-request-id"]);
  request.request_id = UsableRequestId(id) ? std::string(id) : NewRequestId(services_.rng);
  request.traceparent = std::string(StdView(head["traceparent"]).substr(0, 256));
  std::string state;
  const auto [begin, end] = head.equal_range("tracestate");  // several are one list
  for (auto field = begin; field != end; ++field) {
    state.append(state.empty() ? "" : ",").append(StdView(field->value()));
  }
  request.tracestate = trace::KeepTracestate(state);
  request.json_length = std::string(StdView(head["inference-header-content-length"]).substr(0, 64));
  request.timeout = std::string(StdView(head["x-quire-timeout"]).substr(0, 64));
  request.session = std::string(StdView(head["x-session-id"]).substr(0, 256));
  request.timeout_ms = std::string(StdView(head["x-request-timeout-ms"]).substr(0, 64));
}

HttpRequest HttpSession::TakeRequest() {
  HttpRequest request = std::exchange(request_, {});
  request.body = std::move(parser_->get().body());
  parser_.reset();
  // What is parsed at once waits for nothing.
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
  ::shutdown(socket_.native_handle(), SHUT_WR);
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
  hold_.reset();
  call_.reset();
  if (timer_ != 0) services_.executor.Cancel(timer_);
  timer_ = 0;
  error_code ignored;
  socket_.close(ignored);
  if (on_closed_) on_closed_();
  on_closed_ = nullptr;
}

void HttpSession::PostClose() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Close(); });
}

void HttpSession::SetDeadline(Micros delay) {
  if (delay == 0) {
    deadline_ = 0;
    return;
  }
  deadline_ = services_.executor.clock().Now() + delay;
  // A timer that fires too early looks again; only one that would fire too late is replaced.
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
    const Micros limit = services_.limits.write_timeout;
    const Micros silent = services_.executor.clock().Now() - last_progress_;
    if (silent < limit) {
      SetDeadline(limit - silent);
      return;
    }
    services_.counters.http_write_timeouts.Add();
  } else if (state_ == State::kIdle) {
    services_.counters.http_idle_closed.Add();
  }
  Close();
}

}  // namespace quire
