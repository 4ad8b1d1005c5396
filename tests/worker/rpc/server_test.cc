// The worker's gRPC port: frames both ways, readers that stop, connections, and its limits.
#include "worker/rpc/server.h"

#include "common/grpc/held_memory.h"
#include "common/wire/values.h"
#include "tests/worker/rpc/server_fixture.h"

namespace quire {
namespace {

// A RouterFrame whose bytes are also those of a WorkerFrame that keeps what matters: a text in
// hello.
TEST_F(GrpcServerTest, FramesGoBothWaysUpToTheLimitAndTheEndIsInOrder) {
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  pb::WorkerFrame back;
  for (const size_t size : {size_t{10}, size_t{100000}, kMaxFrameBytes - 64}) {
    pb::RouterFrame frame;
    frame.mutable_heartbeat();  // field 8 of a RouterFrame is unknown to a WorkerFrame
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
