// The worker's gRPC port over loopback, with gRPC's own client beside it.
#pragma once

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/runtime/asio_executor.h"
#include "quire/v1/worker.grpc.pb.h"
#include "worker/rpc/bundle_call.h"
#include "worker/rpc/server.h"

namespace quire {

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

}  // namespace quire
