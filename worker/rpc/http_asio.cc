#include "worker/rpc/http_asio.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <list>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "worker/rpc/listen_asio.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

Response Answer(const Request& request, http::status status, std::string body,
                std::string_view type = "text/plain; charset=utf-8") {
  Response response(status, request.version());
  response.set(http::field::content_type, boost::string_view(type.data(), type.size()));
  response.set(http::field::cache_control, "no-store");
  response.keep_alive(request.keep_alive());
  response.body() = std::move(body);
  response.prepare_payload();
  return response;
}

Response AnswerReport(const Request& request, const HealthReport& report) {
  return Answer(request, report.ok ? http::status::ok : http::status::service_unavailable,
                report.why + "\n");
}

Response Route(const Request& request, const HttpServerOptions& options) {
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    Response response =
        Answer(request, http::status::method_not_allowed, "only GET is served here\n");
    response.set(http::field::allow, "GET, HEAD");
    return response;
  }
  const std::string target(request.target().data(), request.target().size());
  const std::string path = target.substr(0, target.find('?'));
  if (path == "/livez") return Answer(request, http::status::ok, "ok\n");
  if (path == "/readyz") return AnswerReport(request, options.health->Ready());
  if (path == "/health") return AnswerReport(request, options.health->Serving());
  if (path == "/metrics") {
    return Answer(request, http::status::ok, options.metrics->Render(),
                  "text/plain; version=0.0.4; charset=utf-8");
  }
  if (path == "/version") {
    return Answer(request, http::status::ok, options.version_json + "\n", "application/json");
  }
  return Answer(request, http::status::not_found,
                "served here: /livez /readyz /health /metrics /version\n");
}

class Connection;
// Open connections; first the one that has waited longest since it came or had its last answer.
using Connections = std::list<Connection*>;

// One connection; alive as long as an operation on it is under way.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const HttpServerOptions& options, Connections& open)
      : stream_(std::move(socket)),
        options_(options),
        open_(open),
        place_(open.insert(open.end(), this)) {}
  ~Connection() { GiveUpPlace(); }

  // Its operations end, and the connection with them.
  void Close() {
    GiveUpPlace();
    beast::error_code ignored;
    stream_.socket().close(ignored);
  }

  void Read() {
    parser_.emplace();
    parser_->header_limit(kMaxHttpHeaderBytes);
    parser_->body_limit(0);
    stream_.expires_after(std::chrono::seconds(kHttpTimeoutSeconds));
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](beast::error_code error, size_t) { self->OnRead(error); });
  }

 private:
  void OnRead(beast::error_code error) {
    if (error == http::error::header_limit) {
      return Write(Refusal(http::status::request_header_fields_too_large,
                           "headers are limited to 8192 bytes\n"));
    }
    if (error == http::error::body_limit) {
      return Write(Refusal(http::status::payload_too_large, "no bodies are served here\n"));
    }
    if (error.category() == beast::error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      return Write(Refusal(http::status::bad_request, "not an HTTP/1.1 request\n"));
    }
    if (error) return;
    Response response = Route(parser_->get(), options_);
    const bool head = parser_->get().method() == http::verb::head;
    if (head)
      response.body().clear();  // the length of the body that GET would return stays in the headers
    Write(std::move(response));
  }

  static Response Refusal(http::status status, std::string body) {
    Request none;
    none.version(11);
    none.keep_alive(false);
    return Answer(none, status, std::move(body));
  }

  void Write(Response response) {
    response_ = std::move(response);
    stream_.expires_after(std::chrono::seconds(kHttpTimeoutSeconds));
    http::async_write(stream_, response_,
                      [self = shared_from_this()](beast::error_code error, size_t) {
                        if (!error && self->response_.keep_alive()) self->ReadNext();
                      });
  }

  void ReadNext() {
    if (!has_place_) return;  // closed since the answer was written
    open_.splice(open_.end(), open_, place_);
    Read();
  }
  void GiveUpPlace() {
    if (std::exchange(has_place_, false)) open_.erase(place_);
  }

  beast::tcp_stream stream_;
  const HttpServerOptions& options_;
  Connections& open_;
  const Connections::iterator place_;
  bool has_place_ = true;
  beast::flat_buffer buffer_{2 * kMaxHttpHeaderBytes};
  std::optional<http::request_parser<http::empty_body>> parser_;
  Response response_;
};

class HttpServerImpl final : public ProbeServer {
 public:
  explicit HttpServerImpl(const HttpServerOptions& options)
      : options_(options), acceptor_(context_) {}

  ~HttpServerImpl() override {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start() {
    QUIRE_RETURN_IF_ERROR(ListenOn(acceptor_, options_.host, options_.port, kMaxHttpConnections));
    port_ = acceptor_.local_endpoint().port();
    Accept();
    thread_ = std::thread([this] { context_.run(); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  void Accept() {
    acceptor_.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error) {
        Accepted(std::move(socket));
        return Accept();
      }
      // Out of descriptors, most likely: try again when some may have been released.
      retry_.expires_after(std::chrono::milliseconds(100));
      retry_.async_wait([this](beast::error_code stopped) {
        if (!stopped) Accept();
      });
    });
  }

  // A silent client must not keep a probe out: above the limit the connection that has waited
  // longest is closed.
  void Accepted(tcp::socket socket) {
    if (open_.size() >= static_cast<size_t>(kMaxHttpConnections)) {
      open_.front()->Close();
      if (options_.evicted != nullptr) options_.evicted->Add();
    }
    std::make_shared<Connection>(std::move(socket), options_, open_)->Read();
  }

  const HttpServerOptions options_;
  Connections open_;  // outlives those that the context still holds
  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer retry_{context_};
  int port_ = 0;
  std::thread thread_;
};

}  // namespace

absl::Status CheckAddressFree(const std::string& host, int port) {
  asio::io_context context;
  tcp::acceptor acceptor(context);
  return ListenOn(acceptor, host, port, kMaxHttpConnections);
}

absl::StatusOr<std::unique_ptr<ProbeServer>> StartHttpServer(const HttpServerOptions& options) {
  auto server = std::make_unique<HttpServerImpl>(options);
  QUIRE_RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<ProbeServer>(std::move(server));
}

}  // namespace quire
