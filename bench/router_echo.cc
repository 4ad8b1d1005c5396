// The bare hop that a router is measured beside: a gRPC server with the router's own messages and
// nothing behind it. Generate answers with the same tokens as the mock workers at the same pace,
// its first one from the thread that brought the request; Tokenize is a unary call of the same
// sizes.
//
//   router_echo --decode-ms=20
//
// Prints {"grpc": "127.0.0.1:40001"} when it listens; SIGTERM ends it.
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>

#include "bench/flags.h"
#include "bench/mock/paced_worker.h"
#include "common/json/json.h"
#include "common/runtime/asio_executor.h"
#include "quire/v1/inference.grpc.pb.h"

namespace quire::bench {
namespace {

struct Options {
  double decode_ms = 20;
  int32_t vocab = 2048;
  bool stamps = false;
};

// One answer: a message per token, then the two that end one. Deletes itself.
class EchoReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  EchoReactor(const v1::GenerateRequest& request, const Options& options, AsioExecutor& executor)
      : options_(options),
        executor_(executor),
        seed_(request.sampling().seed()),
        tokens_(static_cast<uint64_t>(request.sampling().max_tokens())),
        due_(executor.clock().Now()) {
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    if (written_ >= tokens_) return WriteNext();
    due_ += static_cast<Micros>(options_.decode_ms * kMicrosPerMilli);
    if (options_.decode_ms == 0) return WriteNext();
    executor_.PostAt(due_, [this] { WriteNext(); });
  }
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    if (cancelled_) return Finish(grpc::Status::CANCELLED);
    message_.Clear();
    const uint64_t index = written_++;
    const auto vocab = static_cast<uint32_t>(options_.vocab);
    if (index < tokens_) {
      v1::Delta& delta = *message_.mutable_delta();
      delta.set_first_index(index);
      delta.add_token_ids(options_.stamps ? StampOf(executor_.clock().Now(), vocab)
                                          : TokenOf(seed_, 0, index, vocab));
      return StartWrite(&message_);
    }
    if (index == tokens_) {
      message_.mutable_done()->set_finish_reason("length");
      return StartWrite(&message_);
    }
    message_.mutable_usage()->set_completion_tokens(static_cast<uint32_t>(tokens_));
    StartWriteAndFinish(&message_, {}, grpc::Status::OK);
  }

  const Options& options_;
  AsioExecutor& executor_;
  const uint64_t seed_;
  const uint64_t tokens_;
  uint64_t written_ = 0;
  Micros due_;
  std::atomic<bool> cancelled_{false};
  v1::GenerateResponse message_;
};

class EchoService final : public v1::Inference::CallbackService {
 public:
  EchoService(const Options& options, AsioExecutor& executor)
      : options_(options), executor_(executor) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* /*context*/, const v1::GenerateRequest* request) override {
    return new EchoReactor(*request, options_, executor_);
  }

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override {
    const uint64_t seed = request->text().size();
    response->add_token_ids(TokenOf(seed, 0, 0, static_cast<uint32_t>(options_.vocab)));
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const Options& options_;
  AsioExecutor& executor_;
};

int Serve(const Options& options) {
  AsioExecutor executor;
  EchoService service(options, executor);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1 << 16);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    std::fprintf(stderr, "router_echo: cannot listen on 127.0.0.1\n");
    return 1;
  }
  json::Object line;
  line["grpc"] = "127.0.0.1:" + std::to_string(port);
  std::printf("%s\n", json::Serialize(line).c_str());
  std::fflush(stdout);
  executor.OnTerminationSignal([](int) { std::_Exit(0); });
  executor.Run();
  return 0;
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  quire::bench::Options options;
  if (!quire::bench::ParseFlags("router_echo", quire::config::ArgumentsFromMain(argc, argv),
                                {{"decode-ms", &options.decode_ms},
                                 {"vocab", &options.vocab},
                                 {"stamps", &options.stamps}}))
    return 2;
  signal(SIGPIPE, SIG_IGN);
  return quire::bench::Serve(options);
}
