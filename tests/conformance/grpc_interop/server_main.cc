// A server of gRPC's interoperability tests on common/grpc, for clients that others wrote.
//
//   grpc_interop_server [--tls-cert-file=FILE --tls-key-file=FILE]
//
// Prints {"grpc": "127.0.0.1:40001"} when it listens; SIGTERM ends it.
#include <openssl/ssl.h>
#include <signal.h>

#include <boost/asio/ip/tcp.hpp>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/config/schema.h"
#include "common/grpc/server.h"
#include "common/json/json.h"
#include "common/pem.h"
#include "common/runtime/asio_executor.h"
#include "common/tls/tls_handshakes.h"
#include "tests/conformance/grpc_interop/test_service.h"

namespace quire::interop {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr Micros kGrace = kMicrosPerSecond;
constexpr size_t kMaxHandshakes = 64;
constexpr size_t kMaxBackgroundWork = 256;

struct Options {
  std::string certificate_file;
  std::string key_file;
};

// Of a test server nothing is read from its counters: one takes what connections count.
GrpcCounters CountersOf(Counter& all) {
  GrpcCounters counters{all, all, all, all, all, all, all, all, all, all, all, {}};
  for (const std::string_view limit : kHttp2Limits) counters.guard_closed[limit] = &all;
  return counters;
}

absl::StatusOr<TlsContext> MakeContext(const Options& options) {
  RealFiles files;
  QUIRE_ASSIGN_OR_RETURN(const std::string certificate,
                         files.Read(options.certificate_file, kMaxPemBytes));
  QUIRE_ASSIGN_OR_RETURN(const std::string key, files.Read(options.key_file, kMaxPemBytes));
  TlsContext context = NewTlsContext(true);
  QUIRE_RETURN_IF_ERROR(UseIdentity(context, certificate, key));
  const auto choose = [](SSL*, const unsigned char** chosen, unsigned char* length,
                         const unsigned char* offered, unsigned int bytes, void*) {
    static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
    unsigned char* found = nullptr;
    const int result =
        SSL_select_next_proto(&found, length, kHttp2, sizeof(kHttp2), offered, bytes);
    *chosen = found;
    return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
  };
  SSL_CTX_set_alpn_select_cb(context.get(), choose, nullptr);
  return context;
}

class InteropServer {
 public:
  InteropServer(AsioExecutor& executor, Background& background, TlsContext context)
      : context_(std::move(context)),
        acceptor_(executor.context(), tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0)),
        world_{.executor = executor, .server_id = std::to_string(rng_.Next())},
        server_(GrpcHost{.executor = executor,
                         .log = log_,
                         .counters = CountersOf(counter_),
                         .limits = {},
                         .background = &background}),
        handshakes_({.context = nullptr,
                     .executor = executor,
                     .counters = {counter_, counter_, counter_, counter_}},
                    kMaxHandshakes, counter_) {
    AddTestService(world_, server_.methods());
    server_.health().Set(true);
    Accept();
  }

  int port() const { return acceptor_.local_endpoint().port(); }

  void Leave(std::function<void()> done) {
    error_code ignored;
    acceptor_.close(ignored);
    handshakes_.CloseAll();
    server_.Shutdown(kGrace, absl::UnavailableError("the server ends"), std::move(done));
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error) return;  // the acceptor is closed
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      Begin(std::move(socket));
      Accept();
    });
  }

  void Begin(tcp::socket socket) {
    if (context_ == nullptr) return server_.Adopt(EdgeStream(std::move(socket)), {}, {});
    handshakes_.Begin(std::move(socket), context_, [this](std::optional<EdgeStream> stream) {
      if (stream) server_.Adopt(*std::move(stream), {}, {});
    });
  }

  const TlsContext context_;  // nullptr: in the clear
  RealRng rng_;
  NullLogger log_;
  Metrics metrics_;
  Counter& counter_ = metrics_.AddCounter({"interop_events_total", "What connections count."});
  tcp::acceptor acceptor_;
  TestWorld world_;
  GrpcServer server_;
  TlsHandshakes handshakes_;
};

int Serve(const Options& options) {
  TlsContext context;
  if (!options.certificate_file.empty()) {
    auto made = MakeContext(options);
    if (!made.ok()) {
      std::fprintf(stderr, "grpc_interop_server: %s\n", StatusMessage(made.status()).c_str());
      return 1;
    }
    context = *std::move(made);
  }
  AsioExecutor executor;
  ThreadBackground background(executor, 1, kMaxBackgroundWork);
  InteropServer server(executor, background, std::move(context));
  executor.OnTerminationSignal([&](int) { server.Leave([&executor] { executor.Stop(); }); });
  json::Object line;
  line["grpc"] = "127.0.0.1:" + std::to_string(server.port());
  std::printf("%s\n", json::Serialize(line).c_str());
  std::fflush(stdout);
  executor.Run();
  background.Stop();
  return 0;
}

}  // namespace
}  // namespace quire::interop

int main(int argc, char** argv) {
  using namespace quire;
  interop::Options options;
  config::Schema schema("grpc_interop_server", "Answers gRPC's interoperability tests.");
  schema.Add({.name = "tls-cert-file", .target = &options.certificate_file});
  schema.Add({.name = "tls-key-file", .target = &options.key_file});
  const auto parsed = schema.Parse(config::ArgumentsFromMain(argc, argv), {});
  if (!parsed.ok()) {
    std::fprintf(stderr, "grpc_interop_server: %s\n", StatusMessage(parsed.status()).c_str());
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  return interop::Serve(options);
}
