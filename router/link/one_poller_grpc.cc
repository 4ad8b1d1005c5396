#include "router/link/one_poller_grpc.h"

#include <grpc/support/cpu.h>
#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "common/sync.h"

namespace quire {
namespace {

// Owners: OnePollerGrpc, and each callback until it has returned.
struct Sleep {
  // False: not within `patience`.
  template <class Condition>
  bool Wait(Micros patience, Condition condition) {
    std::unique_lock<std::mutex> lock(mutex.native());
    return changed.wait_for(lock, std::chrono::microseconds(patience), condition);
  }
  void Tell(const std::function<void()>& change) {
    const std::lock_guard<std::mutex> lock(mutex.native());
    change();
    changed.notify_all();
  }

  Mutex mutex;
  std::condition_variable changed;
  // These are guarded by the mutex.
  bool over = false;
  size_t asleep = 0;
  size_t under_way = 0;  // calls whose callback has not returned
  bool answered = false;
};

// gRPC has let go of the call and its context when it says OnDone.
class FailingCall final : public grpc::ClientUnaryReactor {
 public:
  using Callback = std::function<void(Sleep&)>;
  FailingCall(grpc::GenericStub& stub, std::shared_ptr<Sleep> sleep, Callback callback)
      : sleep_(std::move(sleep)), callback_(std::move(callback)) {
    sleep_->Tell([this] { ++sleep_->under_way; });
    stub.PrepareUnaryCall(&context_, "/quire/sleep", {}, &request_, &response_, this);
    StartCall();
  }

  void OnDone(const grpc::Status& /*status*/) override {
    const std::shared_ptr<Sleep> sleep = sleep_;  // this object may be gone first
    callback_(*sleep);
    sleep->Tell([&] { --sleep->under_way; });
  }

 private:
  const std::shared_ptr<Sleep> sleep_;
  const Callback callback_;
  grpc::ClientContext context_;
  grpc::Slice nothing_{"-"};
  grpc::ByteBuffer request_{&nothing_, 1};
  grpc::ByteBuffer response_;
};

void SleepUntilOver(Sleep& sleep) {
  sleep.Tell([&] { ++sleep.asleep; });
  std::unique_lock<std::mutex> lock(sleep.mutex.native());
  sleep.changed.wait(lock, [&] { return sleep.over; });
  --sleep.asleep;
}

void Answer(Sleep& sleep) {
  sleep.Tell([&] { sleep.answered = true; });
}

}  // namespace

size_t GrpcCallbackThreads() { return std::clamp<size_t>(gpr_cpu_num_cores() / 2, 2, 16); }

struct OnePollerGrpc::Calls {
  void Make(FailingCall::Callback callback) {
    all.push_back(std::make_unique<FailingCall>(stub, sleep, std::move(callback)));
  }
  void WakeAll() {
    sleep->Tell([this] { sleep->over = true; });
    std::unique_lock<std::mutex> lock(sleep->mutex.native());
    sleep->changed.wait(lock, [this] { return sleep->under_way == 0; });
  }

  // Without credentials: its calls fail, and nothing is dialled.
  std::shared_ptr<grpc::Channel> channel = grpc::CreateChannel("nobody", nullptr);
  grpc::GenericStub stub{channel};
  std::shared_ptr<Sleep> sleep = std::make_shared<Sleep>();
  std::vector<std::unique_ptr<FailingCall>> all;
  bool holds = false;
};

OnePollerGrpc::OnePollerGrpc(size_t threads, Micros patience) : calls_(std::make_unique<Calls>()) {
  Sleep& sleep = *calls_->sleep;
  const size_t others = threads - 1;
  for (size_t i = 0; i < others; ++i) calls_->Make(SleepUntilOver);
  calls_->holds = sleep.Wait(patience, [&] { return sleep.asleep == others; });
  if (calls_->holds) {
    calls_->Make(Answer);
    calls_->holds = sleep.Wait(patience, [&] { return sleep.answered; });
  }
  if (!calls_->holds) calls_->WakeAll();
}

OnePollerGrpc::~OnePollerGrpc() { calls_->WakeAll(); }

bool OnePollerGrpc::holds() const { return calls_->holds; }

}  // namespace quire
