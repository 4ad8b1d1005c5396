// The gRPC port over loopback, asked by gRPC's own client: frames both ways, the bundle, health,
// reflection, readers that stop, and its limits.
#include "worker/rpc/server.h"

#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "common/grpc/held_memory.h"
#include "common/runtime/asio_executor.h"
#include "common/wire/values.h"
#include "quire/v1/worker.grpc.pb.h"
#include "worker/rpc/bundle_call.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

// An Asio loop on its own thread whose timers run `speed` times faster than asked.
class FastTimers final : public Executor {
 public:
  FastTimers() : thread_([this] { below_.Run(); }) {}
  ~FastTimers() override {
    below_.Stop();
    thread_.join();
  }
  void Post(std::function<void()> work) override { below_.Post(std::move(work)); }
  TimerId PostAt(Micros due, std::function<void()> work) override {
    const Micros now = clock().Now();
    const int by = speed;
    const Micros wait = by == 0 ? 600 * kMicrosPerSecond : (due - now) / by;
    return below_.PostAt(now + wait, std::move(work));
  }
  bool Cancel(TimerId timer) override { return below_.Cancel(timer); }
  const Clock& clock() const override { return below_.clock(); }
  boost::asio::io_context& context() { return below_.context(); }
  std::atomic<int> speed{1};  // 0: timers wait for the end of the test
  // Runs `work` on the loop and waits for it.
  void Do(const std::function<void()>& work) {
    std::promise<void> done;
    Post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

 private:
  AsioExecutor below_;
  std::thread thread_;
};

// Sends every frame back; tells the test how the stream ended.
class Echo final : public FrameStream::Receiver {
 public:
  void OnFrame(std::string_view frame) override { stream->Write(std::string(frame)); }
  void OnClosed(const absl::Status& status) override {
    stream->Close();  // as sessions do
    if (!std::exchange(was_closed, true)) closed.set_value(status);
  }
  void OnWritable() override { ++writable_count; }
  std::unique_ptr<FrameStream> stream;
  std::promise<absl::Status> closed;  // the first time
  bool was_closed = false;
  int writable_count = 0;
};

class GrpcServerTest : public testing::Test {
 protected:
  GrpcServerTest() {
    WorkerServerOptions options = Options();
    options.model_id = "model";
    options.text_bundle = std::string((2 * kTextBundleChunkBytes) + 7, 'b');
    options.accept = [this](std::unique_ptr<FrameStream> stream) {
      echo.stream = std::move(stream);
      echo.stream->Start(&echo);
      if (!std::exchange(was_accepted, true)) accepted.set_value();
    };
    options.max_connections = kConnections;
    server = *StartWorkerServer(std::move(options));
    target = "127.0.0.1:" + std::to_string(server->port());
    channel = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
    stub = pb::Worker::NewStub(channel);
  }
  ~GrpcServerTest() override {
    executor.Do([this] { echo.stream.reset(); });
    stub.reset();  // closes its connection: nobody reads there that the server leaves
    channel.reset();
    server->Shutdown();
  }

  static constexpr size_t kConnections = 5;

  // Once it has been seen `count` times.
  static void Await(const Counter& counter, uint64_t count) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (counter.value() < count && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(counter.value(), count);
  }
  // A connection that says so much and then listens; -1 at its end.
  class Raw {
   public:
    Raw(int port, const std::string& words) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(static_cast<uint16_t>(port));
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
      EXPECT_EQ(::send(fd_, words.data(), words.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(words.size()));
    }
    ~Raw() { ::close(fd_); }
    // All that comes until the server closes.
    std::string Hear() const {
      std::string heard;
      char buffer[4096];
      for (ssize_t n = 0; (n = ::recv(fd_, buffer, sizeof(buffer), 0)) > 0;) {
        heard.append(buffer, static_cast<size_t>(n));
      }
      return heard;
    }

   private:
    const int fd_;
  };

  WorkerServerOptions Options() {
    WorkerServerOptions options;
    options.context = &executor.context();
    options.executor = &executor;
    options.background = &background;
    options.metrics = &rpc_metrics;
    options.log = &log;
    return options;
  }

  NullLogger log;
  Metrics metrics;
  RpcMetrics rpc_metrics{metrics};
  FastTimers executor;
  ThreadBackground background{executor, 1, 16};
  Echo echo;
  std::promise<void> accepted;  // the first one
  bool was_accepted = false;
  std::unique_ptr<WorkerServer> server;
  std::string target;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<pb::Worker::Stub> stub;
};

// A RouterFrame whose bytes are also those of a WorkerFrame that keeps what matters: a text in
// hello.
TEST_F(GrpcServerTest, FramesGoBothWaysUpToTheLimitAndTheEndIsInOrder) {
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  pb::WorkerFrame back;
  for (const size_t size : {size_t{10}, size_t{100000}, kMaxFrameBytes - 64}) {
    pb::RouterFrame frame;
    frame.mutable_snapshot_request();  // field 7 of a RouterFrame is unknown to a WorkerFrame
    frame.GetReflection()->MutableUnknownFields(&frame)->AddLengthDelimited(99,
                                                                            std::string(size, 'x'));
    ASSERT_TRUE(stream->Write(frame));
    ASSERT_TRUE(stream->Read(&back));
    EXPECT_EQ(back.GetReflection()->GetUnknownFields(back).field(1).length_delimited().size(),
              size);
  }
  stream->WritesDone();
  EXPECT_TRUE(echo.closed.get_future().get().ok());
  EXPECT_FALSE(stream->Read(&back));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcServerTest, AFrameAboveTheLimitEndsTheStream) {
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  accepted.get_future().wait();
  pb::RouterFrame frame;
  frame.GetReflection()->MutableUnknownFields(&frame)->AddLengthDelimited(
      99, std::string(kMaxFrameBytes + (128 << 10), 'x'));
  stream->Write(frame);
  pb::WorkerFrame back;
  EXPECT_FALSE(stream->Read(&back));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GrpcServerTest, AFrameOfOursAboveTheLimitEndsItsStreamAlone) {
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  accepted.get_future().wait();
  executor.Do([&] { echo.stream->Write(std::string(kMaxFrameBytes + (128u << 10), 'x')); });
  pb::WorkerFrame back;
  EXPECT_FALSE(stream->Read(&back));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(echo.closed.get_future().get().ok());
}

TEST_F(GrpcServerTest, ACancelledCallClosesTheStream) {
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  accepted.get_future().wait();
  context.TryCancel();
  echo.closed.get_future().wait();
}

TEST_F(GrpcServerTest, AWriteThatStaysBlockedClosesTheStream) {
  executor.speed = 100;
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  accepted.get_future().wait();
  bool hold_back = false;
  executor.Do([&] {
    for (int i = 0; i < 32; ++i) {
      hold_back = !echo.stream->Write(std::string(kMaxFrameBytes, '\0')) || hold_back;
    }
    EXPECT_GT(echo.stream->PendingBytes(), kMaxFrameBytes);
  });
  EXPECT_TRUE(hold_back);
  // The client never reads: flow control stops the writes.
  EXPECT_EQ(echo.closed.get_future().get().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(GrpcServerTest, DestroyingTheStreamEndsTheCall) {
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  accepted.get_future().wait();
  executor.Do([&] { echo.stream.reset(); });
  pb::WorkerFrame back;
  EXPECT_FALSE(stream->Read(&back));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GrpcServerTest, TheBundleComesInChunks) {
  grpc::ClientContext context;
  pb::GetTextBundleRequest request;
  request.set_model_id("model");
  auto reader = stub->GetTextBundle(&context, request);
  pb::TextBundleChunk chunk;
  std::string bundle;
  int chunks = 0;
  while (reader->Read(&chunk)) {
    EXPECT_LE(chunk.data().size(), kTextBundleChunkBytes);
    EXPECT_EQ(chunk.total_bytes(), 2 * kTextBundleChunkBytes + 7);
    bundle += chunk.data();
    ++chunks;
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(chunks, 3);
  EXPECT_EQ(bundle, std::string((2 * kTextBundleChunkBytes) + 7, 'b'));
}

// A bundle that no client takes unread, by a server of its own.
class LargeBundleTest : public GrpcServerTest {
 protected:
  LargeBundleTest() {
    WorkerServerOptions options = Options();
    options.model_id = "model";
    options.text_bundle = std::string(32u << 20, 'b');
    large = *StartWorkerServer(std::move(options));
    target = "127.0.0.1:" + std::to_string(large->port());
    request.set_model_id("model");
  }
  ~LargeBundleTest() override { large->Shutdown(); }

  std::unique_ptr<WorkerServer> large;
  pb::GetTextBundleRequest request;
};

TEST_F(LargeBundleTest, ARouterThatTakesNothingGivesWay) {
  executor.speed = 100;
  grpc::ClientContext context;
  auto own = pb::Worker::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
  auto reader = own->GetTextBundle(&context, request);
  Await(rpc_metrics.grpc.write_timeouts, 1);
  pb::TextBundleChunk chunk;
  while (reader->Read(&chunk)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(LargeBundleTest, AtMostSoManyRoutersFetchItAtOnce) {
  executor.speed = 0;  // nobody gives way meanwhile
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<pb::TextBundleChunk>>> readers;
  std::vector<std::unique_ptr<pb::Worker::Stub>> stubs;  // a connection each
  for (size_t i = 0; i < kConnections; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stubs.push_back(pb::Worker::NewStub(
        grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments)));
  }
  const auto fetch = [&](size_t connection) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stubs[connection]->GetTextBundle(contexts.back().get(), request));
    readers.back()->WaitForInitialMetadata();
  };
  const auto end_of_last = [&] {
    pb::TextBundleChunk chunk;
    while (readers.back()->Read(&chunk)) {
    }
    return readers.back()->Finish();
  };
  for (size_t i = 0; i < kMaxBundleCalls; ++i) fetch(i % (kConnections - 1));
  fetch(kConnections - 1);
  EXPECT_EQ(end_of_last().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  contexts.front()->TryCancel();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  do {
    fetch(kConnections - 1);
  } while (!end_of_last().ok() && std::chrono::steady_clock::now() < limit);
  EXPECT_LT(std::chrono::steady_clock::now(), limit);
  executor.speed = 1;
  for (size_t i = 0; i < kMaxBundleCalls; ++i) {
    contexts[i]->TryCancel();
    pb::TextBundleChunk chunk;
    while (readers[i]->Read(&chunk)) {
    }
    (void)readers[i]->Finish();
  }
}

TEST_F(GrpcServerTest, CompressedFramesAreUnpacked) {
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  auto stream = stub->Attach(&context);
  pb::RouterFrame frame;
  frame.GetReflection()->MutableUnknownFields(&frame)->AddLengthDelimited(
      99, std::string(100'000, 'x'));
  ASSERT_TRUE(stream->Write(frame));
  pb::WorkerFrame back;
  ASSERT_TRUE(stream->Read(&back));
  EXPECT_EQ(back.ByteSizeLong(), frame.ByteSizeLong());
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcServerTest, ConnectionsBeyondTheLimitAreClosed) {
  {
    std::vector<std::unique_ptr<Raw>> idle;
    for (size_t i = 0; i < kConnections; ++i) {
      idle.push_back(std::make_unique<Raw>(server->port(), ""));
    }
    EXPECT_EQ(Raw(server->port(), "").Hear(), "");
    EXPECT_EQ(rpc_metrics.connections_refused.value(), 1u);
    EXPECT_EQ(rpc_metrics.grpc.connections.value(), kConnections);
  }
  // What they held is given back.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  grpc::Status status(grpc::StatusCode::UNAVAILABLE, "");
  while (!status.ok() && std::chrono::steady_clock::now() < limit) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    auto stream = stub->Attach(&context);
    stream->WritesDone();
    status = stream->Finish();
  }
  EXPECT_TRUE(status.ok());
}

TEST_F(GrpcServerTest, WhatIsNoHttp2EndsItsConnectionAlone) {
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  accepted.get_future().wait();
  const std::string heard = Raw(server->port(), "GET / HTTP/1.1\r\n\r\n").Hear();
  bool told_to_go = false;
  for (size_t at = 0; at + 9 <= heard.size();) {  // frames: their lengths, then their types
    told_to_go = told_to_go || heard[at + 3] == 7;
    const auto byte = [&](size_t i) { return size_t{static_cast<unsigned char>(heard[at + i])}; };
    at += 9 + (byte(0) << 16 | byte(1) << 8 | byte(2));
  }
  EXPECT_TRUE(told_to_go) << "a GOAWAY";
  EXPECT_EQ(rpc_metrics.grpc.guard_closed.at("preface")->value(), 1u);
  pb::RouterFrame frame;
  frame.mutable_snapshot_request();
  ASSERT_TRUE(stream->Write(frame));
  pb::WorkerFrame back;
  EXPECT_TRUE(stream->Read(&back));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(GrpcServerTest, AShutdownEndsWhatIsOpen) {
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  accepted.get_future().wait();
  const auto begun = std::chrono::steady_clock::now();
  server->Shutdown();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
  pb::WorkerFrame back;
  EXPECT_FALSE(stream->Read(&back));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(echo.closed.get_future().get().ok());
}

TEST_F(GrpcServerTest, TheBundleOfAnotherModelIsRefused) {
  grpc::ClientContext context;
  pb::GetTextBundleRequest request;
  request.set_model_id("other");
  auto reader = stub->GetTextBundle(&context, request);
  pb::TextBundleChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "model_id: this worker serves model");
}

std::string Text(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!buffer.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

TEST_F(GrpcServerTest, HealthSaysWhatWasSet) {
  const auto check = [this] {
    grpc::GenericStub generic(channel);
    grpc::ClientContext context;
    grpc::ByteBuffer request, answer;
    const grpc::Slice empty("");
    request = grpc::ByteBuffer(&empty, 1);
    std::promise<grpc::Status> done;
    generic.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request,
                      &answer, [&](const grpc::Status& status) { done.set_value(status); });
    EXPECT_TRUE(done.get_future().get().ok());
    return Text(answer);
  };
  EXPECT_EQ(check(), "\x08\x02");  // NOT_SERVING until said otherwise
  server->SetServing(true);
  EXPECT_EQ(check(), "\x08\x01");  // SERVING
  server->SetServing(false);
  EXPECT_EQ(check(), "\x08\x02");
}

// Sends one reflection request, keeps the answer.
class ReflectionCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit ReflectionCall(grpc::GenericStub& stub) {
    stub.PrepareBidiStreamingCall(&context_,
                                  "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                  grpc::StubOptions(), this);
    const grpc::Slice list_services(std::string("\x3a\x00", 2));
    request_ = grpc::ByteBuffer(&list_services, 1);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&answer_);
    StartCall();
  }
  void OnDone(const grpc::Status& status) override { done_.set_value(status); }
  std::string Answer() {
    EXPECT_TRUE(done_.get_future().get().ok());
    return Text(answer_);
  }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
  std::promise<grpc::Status> done_;
};

TEST_F(GrpcServerTest, ReflectionListsTheService) {
  grpc::GenericStub generic(channel);
  ReflectionCall call(generic);
  EXPECT_NE(call.Answer().find("quire.worker.v1.Worker"), std::string::npos);
}

TEST(RouterMemory, IsAShareOfWhatThePlanLeavesOrWhatAFlagSays) {
  constexpr int64_t kGib = int64_t{1} << 30;
  EXPECT_EQ(RouterMemoryBytes(0, 8 * kGib), size_t{2} << 30);
  EXPECT_EQ(RouterMemoryBytes(0, 4 * static_cast<int64_t>(kLeastRouterMemory) + 4),
            kLeastRouterMemory + 1);
  for (const int64_t little : {int64_t{0}, int64_t{-1}, kGib / 4}) {
    EXPECT_EQ(RouterMemoryBytes(0, little), kLeastRouterMemory);
  }
  EXPECT_EQ(RouterMemoryBytes(1000, 8 * kGib), 1000u);
}

// Half of the account is for one connection.
TEST_F(GrpcServerTest, ConnectionsAtTheLimitOfMemoryAreServedAndOneByteLessRefusesOne) {
  for (const size_t less : {0u, 1u}) {
    WorkerServerOptions options = Options();
    options.memory = std::make_shared<MemoryAccount>(2 * kConnectionBytes - less);
    const auto memory = options.memory;
    const auto small = *StartWorkerServer(std::move(options));
    Raw first(small->port(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    const auto held = [&] {
      size_t bytes = 0;
      executor.Do([&] { bytes = memory->bytes(); });
      return bytes;
    };
    while (held() < kConnectionBytes) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Raw second(small->port(), "");
    if (less == 0) {
      while (held() < 2 * kConnectionBytes) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    } else {
      EXPECT_EQ(second.Hear(), "") << "closed as it came";
    }
    EXPECT_EQ(memory->refused(MemoryScope::kProcess), less);
    small->Shutdown();
  }
}

TEST_F(GrpcServerTest, ATakenPortIsAnError) {
  WorkerServerOptions options = Options();
  options.port = server->port();
  const auto second = StartWorkerServer(std::move(options));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(StatusMessage(second.status()).find(target), std::string::npos);
}

}  // namespace
}  // namespace quire
