#include "kernels/cpu/thread_pool.h"

#include <immintrin.h>

#include <chrono>

namespace quire::kernels::cpu {
namespace {

// Spins until `value` is no longer `old`, for at most the pool's spin time, then sleeps in the
// kernel.
template <class T>
void WaitForChange(const std::atomic<T>& value, T old) {
  using Clock = std::chrono::steady_clock;
  const auto give_up = Clock::now() + std::chrono::microseconds(ThreadPool::kSpinMicroseconds);
  do {
    for (int i = 0; i < 32; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      _mm_pause();
    }
  } while (Clock::now() < give_up);
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { WorkerLoop(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::TakeTasks(int thread) {
  while (true) {
    const uint64_t ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
    const int count = static_cast<int>(ticket >> 32);
    const uint32_t index = static_cast<uint32_t>(ticket);
    if (index >= static_cast<uint32_t>(count)) return;
    function_(context_, static_cast<int>(index), thread);
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) done_.notify_one();
  }
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t seen = 0;
  while (true) {
    WaitForChange(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    TakeTasks(thread);
  }
}

void ThreadPool::RunErased(int count, Function function, const void* context) {
  if (workers_.empty() || count <= 1) {
    for (int i = 0; i < count; ++i) function(context, i, 0);
    return;
  }
  function_ = function;
  context_ = context;
  done_.store(0, std::memory_order_relaxed);
  ticket_.store(static_cast<uint64_t>(count) << 32, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  TakeTasks(0);
  for (int done = done_.load(std::memory_order_acquire); done != count;
       done = done_.load(std::memory_order_acquire)) {
    WaitForChange(done_, done);
  }
}

}  // namespace quire::kernels::cpu
