// The router's own gRPC caller against a server of gRPC's interoperability tests that others wrote.
//
//   grpc_interop_caller --server=127.0.0.1:40001 --case=large_unary
//                       [--tls-ca-file=FILE --tls-cert-file=FILE --tls-key-file=FILE
//                       --tls-name=NAME]
//
// Ends with 0 when the case passes; else with 1, and says why. --case=list names the cases.
#include <signal.h>

#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/config/schema.h"
#include "common/pem.h"
#include "grpc_interop/testing.pb.h"
#include "router/link/worker_call_asio.h"

namespace quire::interop {
namespace {

namespace pb = ::grpc::testing;

constexpr char kService[] = "/grpc.testing.TestService/";
constexpr Micros kPatience = 30 * kMicrosPerSecond;  // only ends what hangs
constexpr int kUnknown = 2;
constexpr int kLargeRequestBytes = 271'828;
constexpr int kLargeResponseBytes = 314'159;
constexpr int kRequestBytes[] = {27'182, 8, 1'828, 45'904};
constexpr int kResponseBytes[] = {31'415, 9, 2'653, 58'979};

struct Options {
  std::string server;
  std::string name;
  std::string authorities_file, certificate_file, key_file, tls_name;
};

// What ends a case that has not passed.
struct Failed {
  std::string why;
};

void Expect(bool condition, const std::string& what) {
  if (!condition) throw Failed{what};
}

// The loop of a test: it turns while something is awaited.
class Loop {
 public:
  AsioExecutor& executor() { return executor_; }

  void TurnUntil(const std::function<bool()>& done, const char* what) {
    bool late = false;
    const TimerId timer =
        executor_.PostAt(executor_.clock().Now() + kPatience, [&] { late = true; });
    while (!done() && !late) executor_.context().run_one();
    executor_.Cancel(timer);
    Expect(!late, std::string("this did not come: ") + what);
  }
  void TurnFor(Micros time) {
    bool over = false;
    executor_.PostAt(executor_.clock().Now() + time, [&] { over = true; });
    while (!over) executor_.context().run_one();
  }

 private:
  AsioExecutor executor_;
};

// One call, with a connection of its own, as the caller has them.
class Call final : private WorkerCall::Receiver {
 public:
  Call(Loop& loop, const std::shared_ptr<WorkerCallWorld>& world, WorkerCallOptions options)
      : loop_(loop), call_(std::make_shared<WorkerCall>(world, options)) {
    call_->Start(*this);
  }
  ~Call() override { call_->Cancel(); }

  void Say(const google::protobuf::MessageLite& message) {
    call_->Write(message.SerializeAsString());
  }
  void EndWriting() { call_->EndWriting(); }
  void Cancel() {
    cancelled_ = true;
    call_->Cancel();
  }

  template <class Message>
  Message Hear() {
    loop_.TurnUntil([this] { return !messages_.empty() || end_; }, "a message");
    Expect(!messages_.empty(),
           "the call ended before a message: " + (end_ ? end_->ToString() : ""));
    Message message;
    Expect(message.ParseFromString(messages_.front()), "a message cannot be read");
    messages_.pop_front();
    return message;
  }
  absl::Status End() {
    loop_.TurnUntil([this] { return end_.has_value(); }, "the status");
    Expect(messages_.empty(), "more messages came than were asked for");
    return *end_;
  }
  void ExpectOk() {
    const absl::Status status = End();
    Expect(status.ok(), "the call ended with " + status.ToString());
  }
  void ExpectStatus(absl::StatusCode code, std::string_view message) {
    const absl::Status status = End();
    Expect(status.code() == code && status.message() == AbslView(message),
           "the call ended with " + status.ToString());
  }

 private:
  void OnMessage(std::string_view message) override {
    Expect(!cancelled_, "a message came after Cancel");
    messages_.emplace_back(message);
  }
  void OnEnd(const absl::Status& status) override {
    Expect(!cancelled_, "a status came after Cancel");
    end_ = status;
  }

  Loop& loop_;
  const std::shared_ptr<WorkerCall> call_;
  std::deque<std::string> messages_;
  std::optional<absl::Status> end_;
  bool cancelled_ = false;
};

class Caller {
 public:
  Caller(std::string server, std::optional<WorkerTls> tls)
      : server_(std::move(server)),
        tls_(std::move(tls)),
        world_(std::make_shared<WorkerCallWorld>(WorkerCallWorld{
            loop_.executor(), MakeThreadResolver(loop_.executor(), LookUpBySystem)})) {}
  ~Caller() { world_->resolver.reset(); }

  std::unique_ptr<Call> Begin(const std::string& path, Micros timeout = kPatience) {
    return std::make_unique<Call>(loop_, world_,
                                  WorkerCallOptions{.target = server_,
                                                    .path = path,
                                                    .max_message_bytes = 1u << 20,
                                                    .timeout = timeout,
                                                    .tls = tls_ ? &*tls_ : nullptr});
  }
  std::unique_ptr<Call> Of(const std::string& method, Micros timeout = kPatience) {
    return Begin(kService + method, timeout);
  }
  // A call of one message, all of it said.
  std::unique_ptr<Call> Say(const std::string& method,
                            const google::protobuf::MessageLite& message) {
    auto call = Of(method);
    call->Say(message);
    call->EndWriting();
    return call;
  }
  Loop& loop() { return loop_; }

 private:
  const std::string server_;
  const std::optional<WorkerTls> tls_;
  Loop loop_;
  const std::shared_ptr<WorkerCallWorld> world_;
};

void Fill(pb::Payload& payload, int bytes) {
  payload.mutable_body()->assign(static_cast<size_t>(bytes), '\0');
}

void ExpectPayload(const pb::Payload& payload, int bytes) {
  Expect(payload.type() == pb::COMPRESSABLE && payload.body().size() == static_cast<size_t>(bytes),
         "a payload of " + std::to_string(payload.body().size()) + " bytes came, not of " +
             std::to_string(bytes));
}

void EmptyUnary(Caller& caller) {
  const auto call = caller.Say("EmptyCall", pb::Empty());
  call->Hear<pb::Empty>();
  call->ExpectOk();
}

void LargeUnary(Caller& caller) {
  pb::SimpleRequest request;
  request.set_response_size(kLargeResponseBytes);
  Fill(*request.mutable_payload(), kLargeRequestBytes);
  const auto call = caller.Say("UnaryCall", request);
  ExpectPayload(call->Hear<pb::SimpleResponse>().payload(), kLargeResponseBytes);
  call->ExpectOk();
}

void ClientStreaming(Caller& caller) {
  const auto call = caller.Of("StreamingInputCall");
  int sum = 0;
  for (const int bytes : kRequestBytes) {
    pb::StreamingInputCallRequest request;
    Fill(*request.mutable_payload(), bytes);
    call->Say(request);
    sum += bytes;
  }
  call->EndWriting();
  const int heard = call->Hear<pb::StreamingInputCallResponse>().aggregated_payload_size();
  Expect(heard == sum, std::to_string(heard) + " bytes were counted, not " + std::to_string(sum));
  call->ExpectOk();
}

void ServerStreaming(Caller& caller) {
  pb::StreamingOutputCallRequest request;
  for (const int bytes : kResponseBytes) request.add_response_parameters()->set_size(bytes);
  const auto call = caller.Say("StreamingOutputCall", request);
  for (const int bytes : kResponseBytes) {
    ExpectPayload(call->Hear<pb::StreamingOutputCallResponse>().payload(), bytes);
  }
  call->ExpectOk();
}

pb::StreamingOutputCallRequest PingOf(int request_bytes, int response_bytes) {
  pb::StreamingOutputCallRequest request;
  request.add_response_parameters()->set_size(response_bytes);
  Fill(*request.mutable_payload(), request_bytes);
  return request;
}

void PingPong(Caller& caller) {
  const auto call = caller.Of("FullDuplexCall");
  for (size_t i = 0; i < std::size(kRequestBytes); ++i) {
    call->Say(PingOf(kRequestBytes[i], kResponseBytes[i]));
    ExpectPayload(call->Hear<pb::StreamingOutputCallResponse>().payload(), kResponseBytes[i]);
  }
  call->EndWriting();
  call->ExpectOk();
}

void EmptyStream(Caller& caller) {
  const auto call = caller.Of("FullDuplexCall");
  call->EndWriting();
  call->ExpectOk();
}

void TimeoutOnSleepingServer(Caller& caller) {
  const auto call = caller.Of("FullDuplexCall", kMicrosPerMilli);
  pb::StreamingOutputCallRequest request;
  Fill(*request.mutable_payload(), kRequestBytes[0]);
  call->Say(request);
  const absl::Status status = call->End();
  Expect(absl::IsDeadlineExceeded(status), "the call ended with " + status.ToString());
}

// Cancel tells its caller nothing more, and the server takes further calls.
void CancelAfterBegin(Caller& caller) {
  const auto call = caller.Of("StreamingInputCall");
  call->Cancel();
  caller.loop().TurnFor(100 * kMicrosPerMilli);
  EmptyUnary(caller);
}

void CancelAfterFirstResponse(Caller& caller) {
  const auto call = caller.Of("FullDuplexCall");
  call->Say(PingOf(kRequestBytes[0], kResponseBytes[0]));
  ExpectPayload(call->Hear<pb::StreamingOutputCallResponse>().payload(), kResponseBytes[0]);
  call->Cancel();
  caller.loop().TurnFor(100 * kMicrosPerMilli);
  EmptyUnary(caller);
}

void ExpectEcho(Caller& caller, const std::string& words, bool of_a_stream) {
  pb::EchoStatus status;
  status.set_code(kUnknown);
  status.set_message(words);
  pb::SimpleRequest unary;
  *unary.mutable_response_status() = status;
  caller.Say("UnaryCall", unary)->ExpectStatus(absl::StatusCode::kUnknown, words);
  if (!of_a_stream) return;
  pb::StreamingOutputCallRequest streamed;
  *streamed.mutable_response_status() = status;
  caller.Say("FullDuplexCall", streamed)->ExpectStatus(absl::StatusCode::kUnknown, words);
}

void StatusCodeAndMessage(Caller& caller) { ExpectEcho(caller, "test status message", true); }

void SpecialStatusMessage(Caller& caller) {
  ExpectEcho(caller, "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n", false);
}

void ExpectUnimplemented(Caller& caller, const std::string& path) {
  const auto call = caller.Begin(path);
  call->Say(pb::Empty());
  call->EndWriting();
  const absl::Status status = call->End();
  Expect(absl::IsUnimplemented(status), "the call ended with " + status.ToString());
}

void UnimplementedMethod(Caller& caller) {
  ExpectUnimplemented(caller, std::string(kService) + "UnimplementedCall");
}

void UnimplementedService(Caller& caller) {
  ExpectUnimplemented(caller, "/grpc.testing.UnimplementedService/UnimplementedCall");
}

// Each call has a connection of its own.
void ChannelSoak(Caller& caller) {
  for (int i = 0; i < 10; ++i) LargeUnary(caller);
}

using Case = void (*)(Caller&);
const std::map<std::string, Case, std::less<>>& Cases() {
  static const std::map<std::string, Case, std::less<>> cases = {
      {"empty_unary", EmptyUnary},
      {"large_unary", LargeUnary},
      {"client_streaming", ClientStreaming},
      {"server_streaming", ServerStreaming},
      {"ping_pong", PingPong},
      {"empty_stream", EmptyStream},
      {"timeout_on_sleeping_server", TimeoutOnSleepingServer},
      {"cancel_after_begin", CancelAfterBegin},
      {"cancel_after_first_response", CancelAfterFirstResponse},
      {"status_code_and_message", StatusCodeAndMessage},
      {"special_status_message", SpecialStatusMessage},
      {"unimplemented_method", UnimplementedMethod},
      {"unimplemented_service", UnimplementedService},
      {"channel_soak", ChannelSoak},
  };
  return cases;
}

absl::StatusOr<std::optional<WorkerTls>> TlsOf(const Options& options) {
  if (options.authorities_file.empty()) return std::nullopt;
  RealFiles files;
  WorkerTls tls{.pem = {}, .name = options.tls_name};
  QUIRE_ASSIGN_OR_RETURN(tls.pem.authorities, files.Read(options.authorities_file, kMaxPemBytes));
  QUIRE_ASSIGN_OR_RETURN(tls.pem.certificate, files.Read(options.certificate_file, kMaxPemBytes));
  QUIRE_ASSIGN_OR_RETURN(tls.pem.key, files.Read(options.key_file, kMaxPemBytes));
  return tls;
}

int Run(const Options& options) {
  if (options.name == "list") {
    for (const auto& [name, test] : Cases()) std::printf("%s\n", name.c_str());
    return 0;
  }
  const auto found = Cases().find(options.name);
  if (found == Cases().end()) {
    std::fprintf(stderr, "grpc_interop_caller: --case=%s: see --case=list\n", options.name.c_str());
    return 2;
  }
  auto tls = TlsOf(options);
  if (!tls.ok()) {
    std::fprintf(stderr, "grpc_interop_caller: %s\n", StatusMessage(tls.status()).c_str());
    return 2;
  }
  try {
    Caller caller(options.server, *std::move(tls));
    found->second(caller);
  } catch (const Failed& failed) {
    std::fprintf(stderr, "%s: %s\n", options.name.c_str(), failed.why.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace quire::interop

int main(int argc, char** argv) {
  using namespace quire;
  interop::Options options;
  config::Schema schema("grpc_interop_caller", "Asks a server of gRPC's interoperability tests.");
  schema.Add({.name = "server", .target = &options.server});
  schema.Add({.name = "case", .target = &options.name});
  schema.Add({.name = "tls-ca-file", .target = &options.authorities_file});
  schema.Add({.name = "tls-cert-file", .target = &options.certificate_file});
  schema.Add({.name = "tls-key-file", .target = &options.key_file});
  schema.Add({.name = "tls-name", .target = &options.tls_name});
  const auto parsed = schema.Parse(config::ArgumentsFromMain(argc, argv), {});
  if (!parsed.ok()) {
    std::fprintf(stderr, "grpc_interop_caller: %s\n", StatusMessage(parsed.status()).c_str());
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  return interop::Run(options);
}
