// The writing half of HttpSession.
#include <boost/asio/post.hpp>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/release.h"
#include "common/runtime/must_wait_asio.h"
#include "router/http/errors.h"
#include "router/http/http_session_asio.h"
#include "router/messages/errors.h"
#include "router/ollama/words.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using boost::beast::error_code;

constexpr size_t kJoinedBytes = 16u << 10;  // of a body that leaves in one piece with its head

std::string HttpDate(int64_t unix_seconds) {
  const std::time_t seconds = unix_seconds;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  const size_t length = strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return std::string(text, length);
}

}  // namespace

void HttpSession::AppendHead(int status, std::string_view content_type, const HeaderList& headers,
                             std::optional<size_t> length) {
  QUIRE_CHECK(!answer_begun_);
  answer_begun_ = true;
  EdgeMetrics& counters = services_.counters;
  if (status >= 500) {
    counters.http_responses_5xx.Add();
  } else if (status >= 400) {
    counters.http_responses_4xx.Add();
  } else {
    counters.http_responses_2xx.Add();
  }
  if (shared_.draining) keep_alive_ = false;
  out_ += "HTTP/1.1 " + std::to_string(status) + ' ' + HttpReason(status) + "\r\n";
  out_ += "Date: " + HttpDate(services_.executor.clock().UnixSeconds()) + "\r\nServer: quire\r\n";
  if (!content_type.empty()) {
    out_ += "Content-Type: ";
    out_ += content_type;
    out_ += "\r\n";
  }
  if (length) {
    if (status != 204) out_ += "Content-Length: " + std::to_string(*length) + "\r\n";
  } else if (http10_) {
    keep_alive_ = false;  // the end of the connection is the end of the body
  } else {
    chunked_ = true;
    out_ += "Transfer-Encoding: chunked\r\n";
  }
  out_ += "X-Request-Id: " + request_id_ + "\r\n";
  if (of_messages_) out_ += "Request-Id: " + request_id_ + "\r\n";
  if (!trace_response_.empty()) out_ += "traceresponse: " + trace_response_ + "\r\n";
  AppendCors();
  for (const auto& [name, value] : headers) out_ += name + ": " + value + "\r\n";
  out_ += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
}

void HttpSession::AppendCors() {
  if (services_.cors_origins.empty()) return;
  out_ += "Vary: Origin\r\n";
  if (cors_origin_.empty()) return;
  out_ += "Access-Control-Allow-Origin: " + cors_origin_ + "\r\n";
  if (preflight_) {
    out_ +=
        "Access-Control-Allow-Methods: GET, HEAD, POST\r\n"
        "Access-Control-Allow-Headers: authorization, content-type, x-request-id, x-session-id, "
        "x-request-timeout-ms, x-quire-timeout, traceparent, tracestate, x-api-key, "
        "anthropic-version, anthropic-beta\r\n"
        "Access-Control-Max-Age: 600\r\n";
  } else {
    out_ +=
        "Access-Control-Expose-Headers: x-request-id, request-id, x-quire-worker, retry-after, "
        "traceresponse\r\n";
  }
}

void HttpSession::ShapeError(HttpResponse& response) const {
  if (response.error.empty()) return;
  if (says_error_alone_) response.body = ollama::ErrorJson(response.error);
  if (!of_messages_) return;
  response.status = messages::StatusOf(response.status);
  response.body = messages::ErrorJson(response.status, response.error, request_id_);
}

void HttpSession::Reply(HttpResponse response) {
  if (state_ != State::kAnswering) return;
  if (response.body.size() > kJoinedBytes && !ChargeWaiting(response.body.size())) {
    response = ErrorResponse(TooMuchHeld());
  }
  ShapeError(response);
  if (response.shared_body == nullptr && response.body.size() > kJoinedBytes) {
    response.shared_body = std::make_shared<const std::string>(std::move(response.body));
    response.body.clear();
  }
  const bool apart = response.shared_body != nullptr;
  AppendHead(response.status, response.content_type, response.headers,
             apart ? response.shared_body->size() : response.body.size());
  if (!head_only_ && !apart) out_ += response.body;
  if (!head_only_ && apart && !response.shared_body->empty()) body_ = response.shared_body;
  answer_done_ = true;
  StartWrite();
}

void HttpSession::StartStream(int status, std::string_view content_type,
                              const HeaderList& headers) {
  if (state_ != State::kAnswering) return;
  AppendHead(status, content_type, headers, std::nullopt);
}

uint64_t HttpSession::Write(std::string_view bytes) {
  if (state_ != State::kAnswering) return body_queued_;
  QUIRE_CHECK(answer_begun_ && !answer_done_);
  if (!ChargeWaiting(bytes.size())) {
    services_.counters.http_write_timeouts.Add();
    PostClose();
    return body_queued_;
  }
  if (chunked_ && !bytes.empty()) {
    char size[20];
    const auto end = std::to_chars(size, size + sizeof(size), bytes.size(), 16).ptr;
    out_.append(size, end);
    out_ += "\r\n";
    out_ += bytes;
    out_ += "\r\n";
  } else {
    out_ += bytes;
  }
  body_queued_ += bytes.size();
  if (out_.size() > services_.limits.max_write_buffer_bytes) {
    services_.counters.http_write_timeouts.Add();
    PostClose();
    return body_queued_;
  }
  StartWrite();
  return body_queued_;
}

void HttpSession::EndStream() {
  if (state_ != State::kAnswering) return;
  QUIRE_CHECK(answer_begun_ && !answer_done_);
  if (chunked_) out_ += "0\r\n\r\n";
  answer_done_ = true;
  StartWrite();
}

void HttpSession::Abort() {
  if (state_ != State::kAnswering) return;
  PostClose();
}

void HttpSession::StartWrite() {
  if (write_active_ || state_ == State::kClosed) return;
  if (out_.empty() && body_ == nullptr) {
    // HTTP/1.0 streams end with no bytes of their own: the end still takes its turn on the loop.
    if (answer_done_) {
      asio::post(stream_.get_executor(), [self = shared_from_this()] { self->AnswerWritten(); });
    }
    return;
  }
  writing_.clear();
  if (out_.empty()) {
    writing_body_ = std::move(body_);
    left_ = *writing_body_;
  } else {
    writing_.swap(out_);
    left_ = writing_;
  }
  body_in_flight_ = body_queued_;
  write_active_ = true;
  taken_since_ = services_.executor.clock().Now();
  taken_bytes_ = 0;
  if (state_ == State::kAnswering && deadline_ == 0) SetDeadline(services_.limits.write_timeout);
  WriteOn();
}

// A step of a worker brings a token to each of many streams. An operation of the event loop for
// each would cost half as much again as the call that sends it; most sends complete at once. The
// event loop sends what the system does not take now.
void HttpSession::WriteOn() {
  error_code error;
  const size_t sent = stream_.Write(left_, error);
  left_.remove_prefix(sent);
  taken_bytes_ += sent;
  if (!error) return WrittenAtOnce();
  const auto self = shared_from_this();
  if (!MustWait(error)) {
    asio::post(stream_.get_executor(), [self] { self->OnWriteError(); });
    return;
  }
  stream_.AwaitRoom([self](const error_code& waited) {
    if (self->state_ == State::kClosed) return;
    if (waited) return self->OnWriteError();
    self->WriteOn();
  });
}

// All sessions that wrote in one turn are notified in the next.
void HttpSession::WrittenAtOnce() {
  shared_.written->push_back(shared_from_this());
  if (shared_.written->size() > 1) return;
  asio::post(stream_.get_executor(), [written = shared_.written] {
    // A session that writes again meanwhile is notified in the turn after that.
    const std::vector<std::shared_ptr<HttpSession>> sessions = std::move(*written);
    written->clear();
    for (const std::shared_ptr<HttpSession>& session : sessions) session->OnWritten();
  });
}

void HttpSession::OnWriteError() {
  write_active_ = false;
  if (state_ == State::kClosed) return;
  if (state_ == State::kAnswering && !answer_done_) services_.counters.client_disconnects.Add();
  Close();
}

void HttpSession::OnWritten() {
  write_active_ = false;
  writing_body_.reset();
  if (state_ == State::kClosed) return;
  if (out_.empty() && body_ == nullptr && waiting_.bytes() > kWaitingStep) {
    ReleaseBuffers();
    waiting_.Resize(kWaitingStep);  // what a stream holds from token to token
  }
  if (call_) call_->OnWritten(body_in_flight_);
  if (state_ != State::kAnswering) return;
  if (!out_.empty() || body_ != nullptr) {
    StartWrite();
  } else if (answer_done_) {
    AnswerWritten();
  }
}

// What was written does not count any more.
void HttpSession::ReleaseBuffers() {
  Release(out_);
  Release(writing_);
}

bool HttpSession::TakesEnough() {
  const Micros limit = services_.limits.write_timeout;
  const Micros now = services_.executor.clock().Now();
  const Micros waited = now - taken_since_;
  if (waited < limit) {
    SetDeadline(limit - waited);
    return true;
  }
  const double seconds = static_cast<double>(waited) / static_cast<double>(kMicrosPerSecond);
  const double least = static_cast<double>(services_.limits.min_read_bytes_per_second) * seconds;
  if (static_cast<double>(taken_bytes_) < std::max(least, 1.0)) return false;
  taken_since_ = now;
  taken_bytes_ = 0;
  SetDeadline(limit);
  return true;
}

void HttpSession::AnswerWritten() {
  if (state_ != State::kAnswering || write_active_ || !out_.empty() || body_ != nullptr) return;
  call_.reset();
  waiting_.Resize(0);
  request_id_.clear();
  of_messages_ = says_error_alone_ = false;
  if (!keep_alive_ || shared_.draining) {
    Linger();
    return;
  }
  state_ = State::kIdle;
  SetDeadline(services_.limits.idle_timeout);
  if (in_.empty()) Release(in_);
  ReleaseBuffers();
  Parse();
  Read();
}

}  // namespace quire
