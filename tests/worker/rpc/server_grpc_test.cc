// The gRPC port over loopback: frames both ways, the bundle, health, reflection, a reader that
// stops.
#include "worker/rpc/server_grpc.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "common/runtime/asio_executor.h"
#include "common/wire.h"
#include "quire/v1/worker.grpc.pb.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

// An Asio loop on its own thread whose timers run a hundred times faster than asked.
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
    return below_.PostAt(now + (due - now) / 100, std::move(work));
  }
  bool Cancel(TimerId timer) override { return below_.Cancel(timer); }
  const Clock& clock() const override { return below_.clock(); }
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
    const bool by_peer = status.ok();
    if (by_peer) stream->Close();
    closed.set_value(status);
  }
  void OnWritable() override { ++writable_count; }
  std::unique_ptr<FrameStream> stream;
  std::promise<absl::Status> closed;
  int writable_count = 0;
};

class GrpcServerTest : public testing::Test {
 protected:
  GrpcServerTest() {
    GrpcServerOptions options;
    options.listen = "127.0.0.1:0";
    options.model_id = "model";
    options.text_bundle = std::string((2 * kTextBundleChunkBytes) + 7, 'b');
    options.executor = &executor;
    options.accept = [this](std::unique_ptr<FrameStream> stream) {
      echo.stream = std::move(stream);
      echo.stream->Start(&echo);
      accepted.set_value();
    };
    server = *StartGrpcServer(std::move(options));
    target = "127.0.0.1:" + std::to_string(server->port());
    channel = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
    stub = pb::Worker::NewStub(channel);
  }
  ~GrpcServerTest() override {
    executor.Do([this] { echo.stream.reset(); });
    server->Shutdown();
  }

  FastTimers executor;
  Echo echo;
  std::promise<void> accepted;
  std::unique_ptr<GrpcServer> server;
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
  pb::RouterFrame frame;
  frame.GetReflection()->MutableUnknownFields(&frame)->AddLengthDelimited(
      99, std::string(kMaxFrameBytes + (128 << 10), 'x'));
  stream->Write(frame);
  pb::WorkerFrame back;
  EXPECT_FALSE(stream->Read(&back));
  EXPECT_FALSE(stream->Finish().ok());
}

TEST_F(GrpcServerTest, ACancelledCallClosesTheStream) {
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  accepted.get_future().wait();
  context.TryCancel();
  echo.closed.get_future().wait();
}

TEST_F(GrpcServerTest, AWriteThatStaysBlockedClosesTheStream) {
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  accepted.get_future().wait();
  bool hold_back = false;
  executor.Do([&] {
    for (int i = 0; i < 64; ++i) {
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

TEST_F(GrpcServerTest, ATakenPortIsAnError) {
  GrpcServerOptions options;
  options.listen = target;
  options.executor = &executor;
  const auto second = StartGrpcServer(std::move(options));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(StatusMessage(second.status()).find(target), std::string::npos);
}

}  // namespace
}  // namespace quire
