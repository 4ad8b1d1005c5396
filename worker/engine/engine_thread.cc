#include "worker/engine/engine_thread.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "common/check.h"

namespace quire {
namespace {

// Waits are limited so that a distant wake-up never exceeds the clock's range.
constexpr int64_t kLongestWaitMicros = 60 * kMicrosPerSecond;

}  // namespace

EngineThread::EngineThread(Engine& engine, const StepProgress& progress, const Clock& clock,
                           std::function<void()> on_output)
    : engine_(engine), progress_(progress), clock_(clock), on_output_(std::move(on_output)) {
  QUIRE_CHECK(on_output_ != nullptr);
}

EngineThread::~EngineThread() { Stop(); }

void EngineThread::Start() {
  QUIRE_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Run(); });
}

void EngineThread::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void EngineThread::Wake() {
  {
    MutexLock lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

bool EngineThread::TryPush(EngineCommand&& command) {
  {
    MutexLock lock(mutex_);
    if (!HasRoom(command, commands_.size())) return false;
    commands_.push_back(std::move(command));
  }
  wake_.notify_one();
  return true;
}

void EngineThread::TakeOutputs(std::vector<EngineOutput>& outputs) {
  // Not under the lock: the engine's thread must not wait while they are destroyed.
  if (outputs.size() > kMaxSpareOutputs) outputs.resize(kMaxSpareOutputs);
  outputs.reserve(kMaxQueuedOutputs);
  MutexLock lock(mutex_);
  outputs_.Take(outputs);
}

bool EngineThread::WaitForWork(int64_t until_us, std::deque<EngineCommand>& commands) {
  std::unique_lock<std::mutex> lock(mutex_.native());
  while (commands_.empty() && !stopping_ && !woken_) {
    const int64_t wait_us = std::min(until_us - clock_.Now(), kLongestWaitMicros);
    if (wait_us <= 0) break;
    wake_.wait_for(lock, std::chrono::microseconds(wait_us));
  }
  woken_ = false;
  commands.swap(commands_);
  return !stopping_;
}

void EngineThread::Run() {
  pthread_setname_np(pthread_self(), "engine");
  std::deque<EngineCommand> commands;
  EngineOutput output;
  int64_t next_wakeup_us = 0;
  while (WaitForWork(next_wakeup_us, commands)) {
    for (EngineCommand& command : commands) engine_.Apply(std::move(command), clock_.Now());
    commands.clear();
    const int64_t begin_us = clock_.Now();
    engine_.RunOnce(begin_us, output);
    if (output.stepped) engine_.ObservePass(clock_.Now() - begin_us);
    next_wakeup_us = output.next_wakeup_us;
    bool tell = false;
    {
      MutexLock lock(mutex_);
      tell = outputs_.Push(output);
    }
    if (tell) on_output_();
  }
}

}  // namespace quire
