#include "router/discovery/fetch_asio.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/buffers_prefix.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>

#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/host_port.h"
#include "common/runtime/watched_files.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using Error = beast::error_code;

constexpr size_t kMaxSecretBytes = 1u << 20;
constexpr uint32_t kMaxHeaderBytes = 64u << 10;
constexpr size_t kReadBytes = 64u << 10;

struct Url {
  bool tls = false;
  std::string host;
  uint16_t port = 0;
};

absl::StatusOr<Url> ParseUrl(const std::string& text) {
  Url url;
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    url.tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    rest = {};
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != std::string_view::npos && rest.find(']', colon) == rest.npos;
  const std::string target =
      has_port ? std::string(rest) : std::string(rest) + (url.tls ? ":443" : ":80");
  if (rest.empty() || !CheckTarget(target).ok()) {
    return InvalidArgument("must be a URL as https://kubernetes.default.svc or " +
                           std::string("http://127.0.0.1:8001, is '") + text.substr(0, 200) + "'");
  }
  HostPort parts = *ParseHostPort(target);
  url.host = std::move(parts.host);
  url.port = parts.port;
  return url;
}

// What the fetches of one fetcher share.
struct Shared {
  FetcherOptions options;
  Url url;
  asio::io_context& context;
  Resolver& resolver;
  Files& files;
};

// Owned by its handle and by its own pending operations: after Stop it calls nothing back.
class Exchanging : public std::enable_shared_from_this<Exchanging> {
 public:
  Exchanging(const Shared& shared, std::string path, FetchReceiver& receiver)
      : shared_(shared),
        path_(std::move(path)),
        receiver_(&receiver),
        deadline_(shared.context),
        socket_(shared.context),
        chunk_(kReadBytes) {}

  void Start(Micros timeout) {
    deadline_.expires_after(std::chrono::microseconds(timeout));
    deadline_.async_wait([self = shared_from_this()](Error error) {
      if (!error) self->End(absl::DeadlineExceededError("no end of the answer in time"));
    });
    shared_.resolver.Resolve(shared_.url.host, [self = weak_from_this()](auto addresses) {
      if (const auto fetch = self.lock()) fetch->Connect(std::move(addresses));
    });
  }

  void Stop() {
    receiver_ = nullptr;
    deadline_.cancel();
    Error ignored;
    socket_.close(ignored);
  }

 private:
  void End(const absl::Status& status) {
    if (receiver_ == nullptr) return;
    FetchReceiver* receiver = receiver_;
    Stop();
    receiver->OnEnd(Annotate(status, shared_.options.server));
  }
  // True: continue.
  bool Passed(Error error, std::string_view doing) {
    if (receiver_ == nullptr) return false;
    if (!error) return true;
    End(absl::UnavailableError(AbslView(std::string(doing) + ": " + error.message())));
    return false;
  }

  void Connect(absl::StatusOr<std::vector<std::string>> addresses) {
    if (receiver_ == nullptr) return;
    if (!addresses.ok()) return End(addresses.status());
    std::vector<tcp::endpoint> endpoints;
    for (const std::string& address : *addresses) {
      Error error;
      const auto parsed = asio::ip::make_address(address, error);
      if (!error) endpoints.emplace_back(parsed, shared_.url.port);
    }
    asio::async_connect(socket_, endpoints,
                        [self = shared_from_this()](Error error, const tcp::endpoint&) {
                          if (self->Passed(error, "connect")) self->Handshake();
                        });
  }

  void Handshake() {
    if (!shared_.url.tls) return Send();
    if (const absl::Status ready = MakeTls(); !ready.ok()) return End(ready);
    tls_->async_handshake(asio::ssl::stream_base::client, [self = shared_from_this()](Error error) {
      if (self->Passed(error, "TLS handshake")) self->Send();
    });
  }

  absl::Status MakeTls() {
    Error error;
    tls_context_.emplace(asio::ssl::context::tls_client);
    tls_context_->set_verify_mode(asio::ssl::verify_peer);
    QUIRE_ASSIGN_OR_RETURN(const std::string ca,
                           shared_.files.Read(shared_.options.ca_file, kMaxSecretBytes));
    tls_context_->add_certificate_authority(asio::buffer(ca), error);
    if (error) return absl::UnavailableError(AbslView("certificates: " + error.message()));
    tls_.emplace(socket_, *tls_context_);
    tls_->set_verify_callback(asio::ssl::host_name_verification(shared_.url.host));
    Error no_address;
    asio::ip::make_address(shared_.url.host, no_address);
    if (no_address) SSL_set_tlsext_host_name(tls_->native_handle(), shared_.url.host.c_str());
    return absl::OkStatus();
  }

  void Send() {
    request_ = {http::verb::get, path_, 11};
    request_.set(http::field::host, JoinHostPort(shared_.url.host, shared_.url.port));
    request_.set(http::field::accept, "application/json");
    request_.set(http::field::user_agent, "quire-router/" QUIRE_VERSION);
    request_.set(http::field::connection, "close");
    if (shared_.url.tls) {
      const auto token = ReadOneLine(shared_.files, shared_.options.token_file, kMaxSecretBytes);
      if (!token.ok()) return End(token.status());
      request_.set(http::field::authorization, "Bearer " + *token);
    }
    const auto sent = [self = shared_from_this()](Error error, size_t) {
      if (self->Passed(error, "send")) self->ReadHead();
    };
    if (tls_) {
      http::async_write(*tls_, request_, sent);
    } else {
      http::async_write(socket_, request_, sent);
    }
  }

  void ReadHead() {
    parser_.header_limit(kMaxHeaderBytes);
    parser_.body_limit(boost::none);  // the receiver bounds what it keeps
    const auto read = [self = shared_from_this()](Error error, size_t) {
      if (self->Passed(error, "read")) self->TakeHead();
    };
    if (tls_) {
      http::async_read_header(*tls_, buffer_, parser_, read);
    } else {
      http::async_read_header(socket_, buffer_, parser_, read);
    }
  }

  void TakeHead() {
    const auto& head = parser_.get();
    uint32_t retry_after_s = 0;
    const auto field = head[http::field::retry_after];
    std::from_chars(field.data(), field.data() + field.size(), retry_after_s);
    receiver_->OnHead(static_cast<int>(head.result_int()), retry_after_s);
    ReadBody();
  }

  void ReadBody() {
    if (receiver_ == nullptr) return;
    if (parser_.is_done()) return End(absl::OkStatus());
    parser_.get().body().data = chunk_.data();
    parser_.get().body().size = chunk_.size();
    const auto read = [self = shared_from_this()](Error error, size_t) { self->TakeBody(error); };
    if (tls_) {
      http::async_read_some(*tls_, buffer_, parser_, read);
    } else {
      http::async_read_some(socket_, buffer_, parser_, read);
    }
  }

  void TakeBody(Error error) {
    if (receiver_ == nullptr) return;
    const size_t taken = chunk_.size() - parser_.get().body().size;
    if (taken > 0) receiver_->OnBody({chunk_.data(), taken});
    if (error == http::error::need_buffer) error = {};
    if (Passed(error, "read")) ReadBody();
  }

  const Shared& shared_;
  const std::string path_;
  FetchReceiver* receiver_;  // nullptr: stopped
  asio::steady_timer deadline_;
  tcp::socket socket_;
  std::optional<asio::ssl::context> tls_context_;
  std::optional<asio::ssl::stream<tcp::socket&>> tls_;
  http::request<http::empty_body> request_;
  http::response_parser<http::buffer_body> parser_;
  beast::flat_buffer buffer_{kMaxHeaderBytes + kReadBytes};
  std::vector<char> chunk_;
};

class AsioFetch final : public Fetch {
 public:
  explicit AsioFetch(std::shared_ptr<Exchanging> exchange) : exchange_(std::move(exchange)) {}
  ~AsioFetch() override { exchange_->Stop(); }

 private:
  const std::shared_ptr<Exchanging> exchange_;
};

class AsioFetcher final : public Fetcher {
 public:
  explicit AsioFetcher(Shared shared) : shared_(std::move(shared)) {}
  std::unique_ptr<Fetch> Get(const std::string& path, Micros timeout,
                             FetchReceiver& receiver) override {
    auto exchange = std::make_shared<Exchanging>(shared_, path, receiver);
    exchange->Start(timeout);
    return std::make_unique<AsioFetch>(std::move(exchange));
  }

 private:
  const Shared shared_;
};

}  // namespace

absl::Status CheckServerUrl(const std::string& url) { return ParseUrl(url).status(); }

std::unique_ptr<Fetcher> MakeAsioFetcher(const FetcherOptions& options, asio::io_context& context,
                                         Resolver& resolver, Files& files) {
  absl::StatusOr<Url> url = ParseUrl(options.server);
  QUIRE_CHECK_MSG(url.ok(), "main checks its flags");
  return std::make_unique<AsioFetcher>(Shared{options, *std::move(url), context, resolver, files});
}

}  // namespace quire
