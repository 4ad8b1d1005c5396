// What HttpSession decides from a request's head, before its body is read.
#include <algorithm>
#include <optional>
#include <utility>

#include "common/ascii.h"
#include "common/trace/context.h"
#include "router/http/browser_guard.h"
#include "router/http/errors.h"
#include "router/http/http_session_asio.h"
#include "router/messages/errors.h"
#include "router/ollama/words.h"

namespace quire {
namespace {

namespace beast_http = boost::beast::http;

using Head = beast_http::request<beast_http::string_body>;

std::string_view StdView(boost::beast::string_view s) { return {s.data(), s.size()}; }

// Several headers of one name are one list.
std::string AllOf(const Head& head, const char* name) {
  std::string all;
  const auto [begin, end] = head.equal_range(name);
  for (auto field = begin; field != end; ++field) {
    all.append(all.empty() ? "" : ",").append(StdView(field->value()));
  }
  return all;
}

BrowserWords WordsOf(const Head& head) {
  return {StdView(head[beast_http::field::host]), StdView(head[beast_http::field::origin]),
          StdView(head["sec-fetch-site"])};
}

// A key as Anthropic's clients send it counts as if it came as OpenAI's do, which goes first.
struct ShownKey {
  explicit ShownKey(const Head& head) : bearer(StdView(head[beast_http::field::authorization])) {
    const std::string_view key = StdView(head["x-api-key"]);
    if (!bearer.empty() || key.empty()) return;
    made = "Bearer " + std::string(key);
    bearer = made;
  }

  std::string made;
  std::string_view bearer;
};

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

bool IsOipPath(std::string_view path) { return path == "/v2" || path.starts_with("/v2/"); }

}  // namespace

void HttpSession::ReadTarget() {
  target_usable_ = PathOfTarget(StdView(parser_->get().target()), request_.path);
  of_messages_ = target_usable_ && messages::IsPath(request_.path);
  says_error_alone_ = target_usable_ && (ollama::IsPath(request_.path) || IsOipPath(request_.path));
}

void HttpSession::ReadHead() {
  const auto& head = parser_->get();
  HttpRequest& request = request_;
  request.method = std::string(StdView(head.method_string()));
  ReadTarget();
  request.query = std::string(QueryOfTarget(StdView(head.target())));
  request.content_type = std::string(StdView(head[beast_http::field::content_type]).substr(0, 256));
  const std::string_view id = StdView(head["x-request-id"]);
  request.request_id = UsableRequestId(id) ? std::string(id) : NewRequestId(services_.rng);
  request.traceparent = std::string(StdView(head["traceparent"]).substr(0, 256));
  request.tracestate = trace::KeepTracestate(AllOf(head, "tracestate"));
  request.json_length = std::string(StdView(head["inference-header-content-length"]).substr(0, 64));
  request.timeout = std::string(StdView(head["x-quire-timeout"]).substr(0, 64));
  request.session = std::string(StdView(head["x-session-id"]).substr(0, 256));
  request.timeout_ms = std::string(StdView(head["x-request-timeout-ms"]).substr(0, 64));
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

void HttpSession::RefuseForOperators() {
  std::string_view why =
      "this is for operators: start the router with --admin-port and --admin-token-file, and "
      "bring that token";
  if (access_ == Access::kMetrics) {
    why =
        "metrics name tenants, and are not for whoever reaches this port: start the router with "
        "--metrics-port and ask there, or with --admin-port and --admin-token-file, and bring that "
        "token";
  }
  Refuse(403, why, "operators_only");
}

// On the user's own machine, where no key is required: a page of another site may not.
bool HttpSession::CheckPage() {
  if (!services_.guards_own_machine) return true;
  const auto& head = parser_->get();
  const BrowserWords words = WordsOf(head);
  if (!words.host.empty() && !IsOwnHost(words.host, services_.allowed_hosts)) {
    Refuse(403,
           "Host: \"" + std::string(words.host.substr(0, 256)) +
               "\" is no name of this server, which asks for no key on its own machine: use "
               "localhost or an IP address, or allow the name with --allowed-hosts",
           "host_not_allowed");
    return false;
  }
  if (access_ == Access::kOpen) return true;
  const std::optional<std::string> foreign = ForeignPage(words, !cors_origin_.empty());
  if (!foreign) return true;
  Refuse(403, *foreign, "origin_not_allowed");
  return false;
}

bool HttpSession::CheckBodyType() {
  const auto& head = parser_->get();
  if (parser_->is_done()) return true;  // there is none
  const std::string_view served = BodyTypesOf(*services_.routes, request_.method, request_.path);
  const std::string_view type = StdView(head[beast_http::field::content_type]);
  if (served.empty() || IsServedType(type, served, WordsOf(head).from_browser())) return true;
  Refuse(415,
         "Content-Type: \"" + std::string(type.substr(0, 128)) + "\" is not read at " +
             request_.path.substr(0, 256) + ", send " + std::string(served),
         "unsupported_media_type");
  return false;
}

// Past the limit of connections there are places for probes only.
bool HttpSession::CheckSeat() {
  if (!seat_->probes_only) return true;
  keep_alive_ = false;
  if (access_ == Access::kOpen) return true;
  services_.counters.connections_refused.Add();
  HttpResponse response =
      ErrorResponse(503, "too many connections are open", "too_many_connections");
  response.headers.emplace_back("Retry-After", "1");
  Refuse(std::move(response));
  return false;
}

// Before the body is read: a client that is not admitted costs no more than a header.
bool HttpSession::Authorize() {
  const auto& head = parser_->get();
  if (IsOpen(services_, access_)) return true;
  const bool of_operators = access_ == Access::kOperator || access_ == Access::kMetrics;
  KeyRing* const keys = of_operators ? services_.operators : services_.keys;
  if (keys == nullptr && of_operators) {
    RefuseForOperators();
    return false;
  }
  // A browser sends a preflight request before it sends a key.
  if (head.method() == beast_http::verb::options && !cors_origin_.empty()) return true;
  const bool several = head.count(beast_http::field::authorization) > 1 ||
                       head.count("x-api-key") > 1 || head.count("x-quire-tenant") > 1;
  const ShownKey key(head);
  Result<KeyRing::Tenant> tenant =
      keys->Authenticate({key.bearer, StdView(head["x-quire-tenant"]), several,
                          seat_->ClientOf(AllOf(head, "x-forwarded-for"))});
  if (tenant.ok()) {
    seat_->has_shown_key = true;
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
  access_ = target_usable_ ? AccessOf(*services_.routes, request_.path) : Access::kKey;
  if (!CheckFraming() || !CheckSeat() || !CheckPage() || !Authorize() || !CheckBodyType()) {
    return false;
  }
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

}  // namespace quire
