// The bare hop that a router is measured beside: a gRPC server with the router's own messages and
// nothing behind it. Generate answers with the same tokens as the mock workers at the same pace,
// its first one from the thread that brought the request; Tokenize is a unary call of the same
// sizes.
//
//   router_echo --decode-ms=20
//
// With --groups=N the answers join N groups in turn, and the tokens of a group are written
// together, as a worker writes those of its rows; --spread-steps works as in mock_workers.
//
// Prints {"grpc": "127.0.0.1:40001"} when it listens; SIGTERM ends it.
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <array>
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
  int32_t groups = 0;  // 0: each answer has its own times
  bool spread_steps = false;
};

constexpr int32_t kMaxGroups = 64;

// When the groups write. Thread-safe.
class Groups {
 public:
  explicit Groups(const Options& options) : count_(static_cast<uint32_t>(options.groups)) {
    const auto interval = static_cast<Micros>(options.decode_ms * kMicrosPerMilli);
    for (int32_t i = 0; i < options.groups; ++i) {
      phases_[static_cast<size_t>(i)] =
          options.spread_steps ? interval * i / options.groups : kNotBegun;
    }
  }

  // The phase of the next group in turn, which begins now if it has not; −1 without groups.
  Micros Join(Micros now) {
    if (count_ == 0) return -1;
    Micros seen = kNotBegun;
    return phases_[joined_.fetch_add(1) % count_].compare_exchange_strong(seen, now) ? now : seen;
  }

 private:
  static constexpr Micros kNotBegun = -1;
  const uint32_t count_;
  std::atomic<uint32_t> joined_{0};
  std::array<std::atomic<Micros>, kMaxGroups> phases_{};
};

// One answer: a message per token, then the two that end one. Deletes itself.
class EchoReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  EchoReactor(const v1::GenerateRequest& request, const Options& options, Groups& groups,
              AsioExecutor& executor)
      : options_(options),
        executor_(executor),
        seed_(request.sampling().seed()),
        tokens_(static_cast<uint64_t>(request.sampling().max_tokens())),
        due_(executor.clock().Now()),
        phase_(groups.Join(due_)) {
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    if (written_ >= tokens_) return WriteNext();
    const auto interval = static_cast<Micros>(options_.decode_ms * kMicrosPerMilli);
    due_ = phase_ < 0 ? due_ + interval : NextAtPhase(due_, interval, phase_);
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
  const Micros phase_;
  std::atomic<bool> cancelled_{false};
  v1::GenerateResponse message_;
};

class EchoService final : public v1::Inference::CallbackService {
 public:
  EchoService(const Options& options, AsioExecutor& executor)
      : options_(options), executor_(executor), groups_(options) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* /*context*/, const v1::GenerateRequest* request) override {
    return new EchoReactor(*request, options_, groups_, executor_);
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
  Groups groups_;
};

int Serve(const Options& options) {
  if (options.groups < 0 || options.groups > kMaxGroups || options.decode_ms < 0) {
    std::fprintf(stderr, "router_echo: --groups is in [0, 64], --decode-ms at least 0\n");
    return 2;
  }
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
                                 {"stamps", &options.stamps},
                                 {"groups", &options.groups},
                                 {"spread-steps", &options.spread_steps}}))
    return 2;
  signal(SIGPIPE, SIG_IGN);
  return quire::bench::Serve(options);
}
