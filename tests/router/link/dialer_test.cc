// The dialer against a real gRPC server on loopback.
#include "router/link/dialer_asio.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/runtime/asio_executor.h"
#include "common/wire/router_frames.h"
#include "common/wire/values.h"
#include "common/wire/worker_frames.h"
#include "quire/v1/worker.grpc.pb.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

// Echoes a heartbeat's number in a Step's frame_seq; a Cancel makes it end the call, a Finish makes
// it send a frame over the limit.
class EchoWorker final : public pb::Worker::CallbackService {
 public:
  grpc::ServerBidiReactor<pb::RouterFrame, pb::WorkerFrame>* Attach(
      grpc::CallbackServerContext*) override {
    class Reactor final : public grpc::ServerBidiReactor<pb::RouterFrame, pb::WorkerFrame> {
     public:
      Reactor() { StartRead(&in_); }
      void OnReadDone(bool ok) override {
        if (!ok) {
          Finish(grpc::Status::OK);
        } else if (in_.has_cancel()) {
          Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "going away"));
        } else {
          out_.mutable_step()->set_frame_seq(in_.heartbeat().sent_at_ms());
          if (in_.has_finish()) {
            out_.mutable_refused()->set_message(std::string(kMaxFrameBytes, 'x'));
          }
          StartWrite(&out_);
        }
      }
      void OnWriteDone(bool ok) override {
        if (ok) {
          StartRead(&in_);
        } else {
          Finish(grpc::Status::CANCELLED);  // the client is gone: no read will say so
        }
      }
      void OnDone() override { delete this; }

     private:
      pb::RouterFrame in_;
      pb::WorkerFrame out_;
    };
    return new Reactor;
  }

  grpc::ServerWriteReactor<pb::TextBundleChunk>* GetTextBundle(
      grpc::CallbackServerContext*, const pb::GetTextBundleRequest* request) override {
    class Reactor final : public grpc::ServerWriteReactor<pb::TextBundleChunk> {
     public:
      explicit Reactor(const std::string& model) {
        if (model != "model-a") {
          Finish(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "another model"));
          return;
        }
        Next();
      }
      void OnWriteDone(bool) override { Next(); }
      void OnDone() override { delete this; }

     private:
      void Next() {
        if (sent_ == 3) {
          Finish(grpc::Status::OK);
          return;
        }
        chunk_.set_data(std::string(kTextBundleChunkBytes, static_cast<char>('a' + sent_++)));
        chunk_.set_total_bytes(3 * kTextBundleChunkBytes);
        StartWrite(&chunk_);
      }
      int sent_ = 0;
      pb::TextBundleChunk chunk_;
    };
    return new Reactor(request->model_id());
  }
};

class Client final : public FrameStream::Receiver {
 public:
  explicit Client(AsioExecutor& executor) : executor_(executor) {}
  void OnFrame(std::string_view frame) override {
    frames.emplace_back(frame);
    if (frames.size() == expected) executor_.Stop();
  }
  void OnClosed(const absl::Status& status) override {
    closed = status;
    ++closed_count;
    executor_.Stop();
  }
  std::vector<std::string> frames;
  size_t expected = 0;
  std::optional<absl::Status> closed;
  int closed_count = 0;

 private:
  AsioExecutor& executor_;
};

class DialerTest : public ::testing::Test {
 protected:
  DialerTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&worker_);
    server_ = builder.BuildAndStart();
    target_ = "127.0.0.1:" + std::to_string(port_);
  }
  ~DialerTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  // Runs the loop until somebody stops it. A test that hangs is ended by its runner.
  void Run() { executor_->Run(); }

  int port_ = 0;
  EchoWorker worker_;
  std::unique_ptr<grpc::Server> server_;
  std::string target_;
  std::unique_ptr<AsioExecutor> executor_ = std::make_unique<AsioExecutor>();
};

TEST_F(DialerTest, FramesGoBothWaysInOrder) {
  auto dialer = MakeAsioDialer(*executor_);
  Client client(*executor_);
  client.expected = 500;
  auto stream = dialer->Dial(target_);
  stream->Start(&client);
  for (uint64_t i = 1; i <= client.expected; ++i) stream->Write(EncodeHeartbeat(i));
  Run();
  ASSERT_EQ(client.frames.size(), client.expected);
  for (uint64_t i = 0; i < client.expected; ++i) {
    const auto message = DecodeWorkerFrame(client.frames[i]);
    ASSERT_TRUE(message.ok());
    EXPECT_EQ(std::get<StepFrame>(*message).frame_seq, i + 1);
  }
  EXPECT_EQ(stream->PendingBytes(), 0u);
}

TEST_F(DialerTest, AnEndInOrderIsOk) {
  auto dialer = MakeAsioDialer(*executor_);
  Client client(*executor_);
  auto stream = dialer->Dial(target_);
  stream->Start(&client);
  stream->Write(EncodeHeartbeat(1));
  stream->Close();
  Run();
  ASSERT_TRUE(client.closed.has_value());
  EXPECT_TRUE(client.closed->ok()) << *client.closed;
  EXPECT_EQ(client.frames.size(), 1u);
}

TEST_F(DialerTest, TheWorkersErrorComesUp) {
  auto dialer = MakeAsioDialer(*executor_);
  Client client(*executor_);
  auto stream = dialer->Dial(target_);
  stream->Start(&client);
  stream->Write(EncodeCancel({}));
  Run();
  EXPECT_EQ(client.closed->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusMessage(*client.closed), "going away");
}

TEST_F(DialerTest, AFrameOverTheLimitEndsTheStream) {
  auto dialer = MakeAsioDialer(*executor_);
  Client client(*executor_);
  auto stream = dialer->Dial(target_);
  stream->Start(&client);
  stream->Write(EncodeFinish({}));
  Run();
  EXPECT_EQ(client.closed->code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(DialerTest, ARefusedConnectionIsUnavailable) {
  auto dialer = MakeAsioDialer(*executor_);
  server_->Shutdown(std::chrono::system_clock::now());
  Client client(*executor_);
  auto stream = dialer->Dial(target_);
  stream->Start(&client);
  stream->Write(EncodeHeartbeat(1));
  Run();
  EXPECT_EQ(client.closed->code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(StatusMessage(*client.closed).find("onnection refused"), std::string::npos)
      << "links tell a dead worker by it";
  EXPECT_EQ(client.closed_count, 1);
}

TEST_F(DialerTest, ADestroyedStreamIsSilentAndTheDialerCanGo) {
  auto dialer = MakeAsioDialer(*executor_);
  Client client(*executor_);
  auto stream = dialer->Dial(target_);
  stream->Start(&client);
  for (uint64_t i = 1; i <= 300; ++i) stream->Write(EncodeHeartbeat(i));
  stream.reset();
  dialer.reset();
  executor_->Post([this] { executor_->Stop(); });
  Run();
  EXPECT_TRUE(client.frames.empty());
  EXPECT_FALSE(client.closed.has_value());
}

TEST(DialerExitTest, EverythingCanGoWhileItDials) {
  for (int round = 0; round < 300; ++round) {
    auto executor = std::make_unique<AsioExecutor>();
    auto dialer = MakeAsioDialer(*executor);
    Client client(*executor);
    auto stream = dialer->Dial("127.0.0.1:1");
    stream->Start(&client);
    stream->Write(EncodeHeartbeat(1));
    for (int i = 0; i < round % 8; ++i) executor->context().poll_one();
    stream.reset();
    dialer.reset();
    executor.reset();
  }
}

TEST_F(DialerTest, FetchesTextBundlesWithinTheLimit) {
  auto dialer = MakeAsioDialer(*executor_);
  std::vector<absl::StatusOr<std::string>> results;
  const auto take = [&](absl::StatusOr<std::string> result) {
    results.push_back(std::move(result));
    executor_->Stop();
  };
  dialer->FetchTextBundle(target_, "model-a", kMaxTextBundleBytes, take);
  Run();
  ASSERT_TRUE(results[0].ok()) << results[0].status();
  EXPECT_EQ(results[0]->size(), 3 * kTextBundleChunkBytes);
  EXPECT_EQ(results[0]->back(), 'c');
}

TEST_F(DialerTest, ABundleOverTheLimitIsRefused) {
  auto dialer = MakeAsioDialer(*executor_);
  absl::Status status;
  dialer->FetchTextBundle(target_, "model-a", 2 * kTextBundleChunkBytes, [&](auto result) {
    status = result.status();
    executor_->Stop();
  });
  Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(DialerTest, TheWorkersRefusalOfABundleComesUp) {
  auto dialer = MakeAsioDialer(*executor_);
  absl::Status status;
  dialer->FetchTextBundle(target_, "model-b", kMaxTextBundleBytes, [&](auto result) {
    status = result.status();
    executor_->Stop();
  });
  Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace quire
