// Calls to workers that say what no worker should, and to those that cannot be reached.
#include "router/link/worker_call_asio.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "common/http2/grpc_framing.h"
#include "router/link/link.h"
#include "tests/router/link/raw_worker.h"

namespace quire {
namespace {

using http2::ErrorCode;
using http2::Header;
using http2::StreamId;

constexpr size_t kMost = 1000;

// Knows what it is told, and answers as a resolver does: later.
class FakeResolver final : public Resolver {
 public:
  explicit FakeResolver(Executor& executor) : executor_(executor) {}
  void Resolve(const std::string& host, Done done) override {
    if (silent) return;
    executor_.Post([this, answer = names[host], done = std::move(done)] {
      if (answer.empty()) return done(absl::UnavailableError("nobody knows it"));
      done(answer);
      if (then) then();
    });
  }
  std::map<std::string, std::vector<std::string>> names;
  std::function<void()> then;  // who asked is connecting
  bool silent = false;

 private:
  Executor& executor_;
};

class WorkerCallTest : public testing::Test, protected WorkerCall::Receiver {
 protected:
  WorkerCallTest() {
    auto made = std::make_unique<FakeResolver>(executor);
    resolver = made.get();
    world = std::make_shared<WorkerCallWorld>(WorkerCallWorld{executor, std::move(made)});
  }
  ~WorkerCallTest() override {
    if (call != nullptr) call->Cancel();
  }

  void OnMessage(std::string_view message) override {
    messages.emplace_back(message);
    if (on_message) on_message();
  }
  void OnEnd(const absl::Status& status) override {
    EXPECT_FALSE(ended.has_value());
    ended = status;
    executor.Stop();
  }
  void OnWritable() override { ++writable; }

  void Dial(const std::string& target, Micros timeout = 0) {
    call = std::make_shared<WorkerCall>(world,
                                        WorkerCallOptions{.target = target,
                                                          .path = "/quire.worker.v1.Worker/Attach",
                                                          .max_message_bytes = kMost,
                                                          .timeout = timeout,
                                                          .tls = nullptr});
    call->Start(*this);
  }
  // Until the call has ended.
  absl::Status End(const std::string& target) {
    Dial(target);
    executor.Run();
    return ended.value_or(absl::OkStatus());
  }
  absl::StatusCode EndOf(RawWorker& worker) { return End(worker.target()).code(); }

  AsioExecutor executor;
  std::shared_ptr<WorkerCallWorld> world;
  FakeResolver* resolver = nullptr;
  std::shared_ptr<WorkerCall> call;
  std::vector<std::string> messages;
  std::optional<absl::Status> ended;
  std::function<void()> on_message;
  int writable = 0;
};

const std::vector<Header> kResponse = {{":status", "200"}, {"content-type", "application/grpc"}};

std::string Message(std::string_view text) {
  std::string out;
  http2::AppendMessage(out, text);
  return out;
}

TEST_F(WorkerCallTest, MessagesGoBothWaysUntilTheWorkersStatus) {
  RawWorker worker(executor);
  worker.on_headers = [&](StreamId stream) { worker.session().Respond(stream, kResponse); };
  worker.on_data = [&](StreamId stream, std::string_view bytes) {
    worker.session().Write(stream, bytes);
    const std::vector<Header> trailers = {{"grpc-status", "14"}, {"grpc-message", "so%20long"}};
    if (bytes.ends_with("last")) worker.session().End(stream, trailers);
  };
  Dial(worker.target());
  for (const char* text : {"first", "", "last"}) call->Write(text);
  EXPECT_GT(call->PendingBytes(), 0u);
  executor.Run();
  EXPECT_EQ(messages, (std::vector<std::string>{"first", "", "last"}));
  EXPECT_EQ(*ended, absl::UnavailableError("so long"));
  EXPECT_EQ(worker.path, "/quire.worker.v1.Worker/Attach");
  EXPECT_EQ(worker.authority, worker.target());
}

// What this process's loops ask the system to be told of, of all that they watch.
unsigned WatchedEvents() {
  unsigned all = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto what = std::filesystem::read_symlink(entry.path(), error);
    if (error || what != "anon_inode:[eventpoll]") continue;
    std::ifstream info("/proc/self/fdinfo/" + entry.path().filename().string());
    for (std::string line; std::getline(info, line);) {
      const size_t at = line.find("events:");
      if (at != std::string::npos) all |= std::stoul(line.substr(at + 7), nullptr, 16);
    }
  }
  return all;
}

TEST_F(WorkerCallTest, OnceItIsConnectedRoomToWriteIsNotAskedFor) {
  RawWorker worker(executor);
  worker.on_headers = [&](StreamId stream) {
    worker.session().Respond(stream, kResponse);
    worker.session().Write(stream, Message("one"));
    const std::vector<Header> trailers = {{"grpc-status", "0"}};
    worker.session().End(stream, trailers);
  };
  unsigned watched = 0;
  on_message = [&] { watched = WatchedEvents(); };
  EXPECT_TRUE(End(worker.target()).ok());
  EXPECT_NE(watched & EPOLLIN, 0u);
  EXPECT_EQ(watched & EPOLLOUT, 0u) << "each word of a worker would wake the loop twice";
}

TEST_F(WorkerCallTest, ACallThatIsCancelledInItsOwnWordIsSilent) {
  RawWorker worker(executor);
  worker.on_headers = [&](StreamId stream) {
    worker.session().Respond(stream, kResponse);
    worker.session().Write(stream, Message("one") + Message("two"));
  };
  on_message = [&] {
    call->Cancel();
    executor.Stop();
  };
  EXPECT_TRUE(End(worker.target()).ok());
  EXPECT_EQ(messages, std::vector<std::string>{"one"});
  EXPECT_FALSE(ended.has_value());
}

struct Misdeed {
  const char* name;
  absl::StatusCode code;
  std::function<void(RawWorker&, StreamId)> does;  // when the request has come
};

// A field of 4,000 bytes, and references to it of a byte each.
std::string HeadersByReference() {
  const std::string value = "\x40\1a\x7f\xa1\x1e" + std::string(4000, 'v');
  const std::string block = "\x88" + value + std::string(2000, '\xbe');
  std::string frame("\0\0\0\1\4\0\0\0\1", 9);
  frame[1] = static_cast<char>(block.size() >> 8);
  frame[2] = static_cast<char>(block.size());
  return frame + block;
}

std::vector<Misdeed> Misdeeds() {
  const auto answers = [](const std::string& body, const std::vector<Header>& trailers) {
    return [=](RawWorker& worker, StreamId stream) {
      worker.session().Respond(stream, kResponse);
      worker.session().Write(stream, body);
      if (!trailers.empty()) worker.session().End(stream, trailers);
    };
  };
  const auto ends_with = [](const std::vector<Header>& headers) {
    return [=](RawWorker& worker, StreamId stream) {
      worker.session().RespondAndEnd(stream, headers);
    };
  };
  const auto resets = [](ErrorCode code) {
    return [=](RawWorker& worker, StreamId stream) { worker.session().Reset(stream, code); };
  };
  std::string packed = Message("x");
  packed[0] = 1;
  const std::string no_end = Message("xxxxx").substr(0, 7);
  const std::string continuation("\0\0\5\x9\0\0\0\0\1\x40\1x\1y", 14);
  return {
      {"headers by reference", absl::StatusCode::kUnavailable,
       [](RawWorker& worker, StreamId) { worker.Write(HeadersByReference()); }},
      {"no gRPC", absl::StatusCode::kUnimplemented, ends_with({{":status", "404"}})},
      {"no status", absl::StatusCode::kUnknown, ends_with({{":status", "200"}})},
      {"large headers", absl::StatusCode::kResourceExhausted,
       [](RawWorker& worker, StreamId stream) {
         const std::string value(kMaxLinkHeaderBytes, 'x');
         worker.session().RespondAndEnd(stream,
                                        std::vector<Header>{{":status", "200"}, {"x", value}});
       }},
      {"compression", absl::StatusCode::kUnimplemented,
       [](RawWorker& worker, StreamId stream) {
         worker.session().Respond(
             stream, std::vector<Header>{{":status", "200"}, {"grpc-encoding", "gzip"}});
       }},
      {"a message over the limit", absl::StatusCode::kResourceExhausted,
       answers(Message(std::string(kMost + 1, 'x')), {})},
      {"a flag of compression", absl::StatusCode::kInternal, answers(packed, {})},
      {"a message without its end", absl::StatusCode::kInternal,
       answers(no_end, {{"grpc-status", "0"}})},
      {"a reset", absl::StatusCode::kInternal, resets(ErrorCode::kInternalError)},
      {"a refusal", absl::StatusCode::kUnavailable, resets(ErrorCode::kRefusedStream)},
      {"closing", absl::StatusCode::kUnavailable,
       [](RawWorker& worker, StreamId) { worker.Close(); }},
      {"garbage", absl::StatusCode::kUnavailable,
       [](RawWorker& worker, StreamId) { worker.Write(std::string(10'000, '\xA5')); }},
      {"headers without end", absl::StatusCode::kUnavailable,
       [=](RawWorker& worker, StreamId) {
         worker.Write(std::string("\0\0\1\1\0\0\0\0\1\x88", 10));
         for (int i = 0; i < 1000; ++i) worker.Write(continuation);
       }},
      {"a window beyond all bounds", absl::StatusCode::kInternal,
       [](RawWorker& worker, StreamId) {
         const std::string grow("\0\0\4\x8\0\0\0\0\1\x7F\xFF\xFF\xFF", 13);
         worker.Write(grow + grow);
       }},
      {"leaving", absl::StatusCode::kUnavailable,
       [](RawWorker& worker, StreamId) {
         worker.session().Terminate(ErrorCode::kNoError);
         worker.Flush();
         worker.Close();
       }},
  };
}

TEST_F(WorkerCallTest, AWorkerThatBreaksTheRulesEndsItsCallAndNothingElse) {
  for (const Misdeed& misdeed : Misdeeds()) {
    executor.context().restart();
    ended.reset();
    RawWorker worker(executor);
    worker.on_headers = [&](StreamId stream) {
      executor.Post([&, stream] {
        misdeed.does(worker, stream);
        worker.Flush();
      });
    };
    EXPECT_EQ(EndOf(worker), misdeed.code) << misdeed.name << ": " << *ended;
    EXPECT_TRUE(messages.empty()) << misdeed.name;
    EXPECT_EQ(StatusMessage(*ended).find("onnection refused"), std::string::npos);
  }
}

TEST_F(WorkerCallTest, WhatDoesNotSpeakHttp2IsNoWorker) {
  for (const std::string& greeting :
       {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string(1 << 20, 'x'),
        std::string("\x15\x03\x03\0\2\2\x46 and what TLS says", 25)}) {
    executor.context().restart();
    ended.reset();
    RawWorker worker(executor);
    worker.greeting = greeting;
    EXPECT_EQ(EndOf(worker), absl::StatusCode::kUnavailable);
  }
}

TEST_F(WorkerCallTest, AWorkerThatDoesNotReadIsGivenUp) {
  world->turn = kMicrosPerMilli;
  RawWorker worker(executor);
  worker.reads = false;
  Dial(worker.target());
  bool room = true;
  while (room) room = call->Write(std::string(kMost, 'x'));
  EXPECT_GT(call->PendingBytes(), kMaxPendingWriteBytes);
  executor.Run();
  EXPECT_EQ(*ended, absl::UnavailableError("the worker does not read what is sent to it"));
  EXPECT_EQ(writable, 0);
}

TEST_F(WorkerCallTest, AReaderThatComesLateIsToldThatThereIsRoom) {
  RawWorker worker(executor);
  Dial(worker.target());
  bool room = true;
  size_t written = 0;
  for (; room; written += kMost + http2::kMessagePrefixBytes) {
    room = call->Write(std::string(kMost, 'x'));
  }
  size_t come = 0;
  worker.on_data = [&](StreamId, std::string_view bytes) {
    come += bytes.size();
    if (come == written) executor.Stop();
  };
  executor.Run();
  EXPECT_EQ(writable, 1);
  EXPECT_EQ(call->PendingBytes(), 0u);
}

TEST_F(WorkerCallTest, AWorkerThatAnswersNoPingIsGivenUp) {
  world->turn = kMicrosPerMilli;
  RawWorker worker(executor);
  worker.reads = false;
  EXPECT_EQ(End(worker.target()), absl::UnavailableError("the worker answers no ping"));
}

TEST_F(WorkerCallTest, ASilentWorkerIsAskedTwiceAndNoMoreUntilSomethingIsSent) {
  world->turn = kMicrosPerMilli;
  RawWorker worker(executor);
  worker.on_headers = [&](StreamId stream) { worker.session().Respond(stream, kResponse); };
  int pings = 0;
  int turns = 0;
  std::function<void()> count = [&] {
    if (++turns == 6 * kLinkPingAfterTurns) return executor.Stop();
    executor.PostAt(executor.clock().Now() + world->turn, count);
  };
  worker.on_ping = [&] { ++pings; };
  count();
  Dial(worker.target());
  executor.Run();
  EXPECT_FALSE(ended.has_value()) << *ended;
  EXPECT_EQ(pings, kMaxPingsWithoutData);
}

// Nothing else may come for a long time.
TEST_F(WorkerCallTest, WhatAWorkerSaysFirstIsAnsweredByTheFirstBytes) {
  namespace asio = boost::asio;
  using asio::ip::tcp;
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9), acknowledged("\0\0\0\4\1\0\0\0\0", 9);
  tcp::acceptor acceptor(executor.context(), tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  tcp::socket worker(executor.context());
  std::string bytes(64u << 10, '\0');
  resolver->names["worker"] = {"127.0.0.1"};
  resolver->then = [&] {
    acceptor.accept(worker);
    asio::write(worker, asio::buffer(settings));
    worker.async_read_some(asio::buffer(bytes), [&](const auto&, size_t size) {
      bytes.resize(size);
      executor.Stop();
    });
  };
  Dial("worker:" + std::to_string(acceptor.local_endpoint().port()));
  executor.Run();
  EXPECT_NE(bytes.find(acknowledged), std::string::npos);
}

TEST_F(WorkerCallTest, AWorkerThatIsNotConnectedYetIsNotSaidNotToRead) {
  world->turn = kMicrosPerMilli;
  resolver->silent = true;
  Dial("worker:1", 10 * kWriteBlockedTurns * kMicrosPerMilli);
  call->Write("x");
  executor.Run();
  EXPECT_EQ(ended->code(), absl::StatusCode::kDeadlineExceeded) << *ended;
}

TEST(ConnectTimeout, AddressesThatDoNotAnswerArePassedBeforeTheLinkGivesUp) {
  EXPECT_EQ(ConnectTimeoutOf(1), kConnectTimeout);
  for (size_t count = 1; count <= kMaxWorkerAddresses; ++count) {
    const Micros all = ConnectTimeoutOf(count) * static_cast<Micros>(count);
    EXPECT_LT(all, LinkOptions().hello_timeout_ms * kMicrosPerMilli) << count;
  }
}

TEST_F(WorkerCallTest, ADeadlineEndsTheCall) {
  world->turn = kMicrosPerMilli;
  RawWorker worker(executor);
  Dial(worker.target(), 5 * kMicrosPerMilli);
  executor.Run();
  EXPECT_EQ(ended->code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(WorkerCallTest, TheNextAddressOfANameIsTried) {
  RawWorker worker(executor);
  worker.on_headers = [&](StreamId stream) {
    worker.session().RespondAndEnd(stream,
                                   std::vector<Header>{{":status", "200"}, {"grpc-status", "9"}});
  };
  const std::string port = ":" + std::to_string(worker.port());
  resolver->names["worker-a"] = {"127.0.0.2", "::1", "127.0.0.1"};
  EXPECT_EQ(End("worker-a" + port).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(worker.authority, "worker-a" + port);
}

TEST_F(WorkerCallTest, OnlyWhereNobodyListensAtAnyAddressAConnectionIsRefused) {
  const auto refused = [&](const std::string& target) {
    executor.context().restart();
    ended.reset();
    const absl::Status status = End(target);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    return StatusMessage(status).find("onnection refused") != std::string::npos;
  };
  uint16_t port = 0;
  {
    RawWorker gone(executor);
    port = gone.port();
  }
  const std::string behind = ":" + std::to_string(port);
  EXPECT_TRUE(refused("127.0.0.1" + behind));
  resolver->names["gone"] = {"127.0.0.1", "127.0.0.2"};
  EXPECT_TRUE(refused("gone" + behind));
  resolver->names["elsewhere"] = {"127.0.0.1", "255.255.255.255"};  // no way there
  EXPECT_FALSE(refused("elsewhere" + behind));
  EXPECT_FALSE(refused("unknown" + behind));
  EXPECT_FALSE(refused("no target"));
}

}  // namespace
}  // namespace quire
