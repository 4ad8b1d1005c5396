#include "kernels/cpu/thread_pool.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <utility>

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

ThreadPool::ThreadPool(int threads, std::vector<NumaNode> nodes)
    : threads_(threads), nodes_(NodesOfThreads(nodes, threads)) {
  tickets_.resize(std::max<size_t>(1, nodes_.size()));
  last_end_.resize(static_cast<size_t>(threads_));
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { WorkerLoop(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::TakeTasks(int thread, int own_node) {
  const auto nodes = static_cast<int>(tickets_.size());
  for (int node = 0; node < nodes; ++node) {
    std::atomic<uint64_t>& of = tickets_[static_cast<size_t>((own_node + node) % nodes)].value;
    while (true) {
      const uint64_t ticket = of.fetch_add(1, std::memory_order_acq_rel);
      const uint32_t index = static_cast<uint32_t>(ticket);
      if (index >= static_cast<uint32_t>(ticket >> 32)) break;
      const int count = count_;  // of this job, which cannot end before this task
      function_(context_, static_cast<int>(index), thread);
      if (idle_ != nullptr) {
        last_end_[static_cast<size_t>(thread)].store(Clock::now().time_since_epoch().count(),
                                                     std::memory_order_relaxed);
      }
      if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) done_.notify_one();
    }
  }
}

// The job ends now; a thread without a task waited from its begin on.
void ThreadPool::AddIdle(Clock::time_point begin) {
  const Clock::rep end = Clock::now().time_since_epoch().count();
  Clock::rep idle = 0;
  for (const auto& last : last_end_) {
    idle += end - std::max(begin.time_since_epoch().count(), last.load(std::memory_order_relaxed));
  }
  const Clock::duration mean(idle / threads_);
  *idle_ += std::chrono::duration<double>(mean).count();
}

void ThreadPool::WorkerLoop(int thread) {
  const int node = NodeOfPiece(thread, threads_, nodes_);
  if (!nodes_.empty()) RunOnNode(nodes_[static_cast<size_t>(node)]);
  uint32_t seen = 0;
  while (true) {
    WaitForChange(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    TakeTasks(thread, node);
  }
}

void ThreadPool::RunErased(int count, Function function, const void* context) {
  if (workers_.empty() || count <= 1) {
    for (int i = 0; i < count; ++i) function(context, i, 0);
    return;
  }
  const Clock::time_point begin = idle_ != nullptr ? Clock::now() : Clock::time_point();
  function_ = function;
  context_ = context;
  count_ = count;
  done_.store(0, std::memory_order_relaxed);
  for (int node = 0; node < static_cast<int>(tickets_.size()); ++node) {
    const auto begin = static_cast<uint64_t>(FirstPiece(node, count, nodes_));
    const auto end = static_cast<uint64_t>(FirstPiece(node + 1, count, nodes_));
    tickets_[static_cast<size_t>(node)].value.store(end << 32 | begin, std::memory_order_release);
  }
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  TakeTasks(0, NodeOfCaller(nodes_));
  for (int done = done_.load(std::memory_order_acquire); done != count;
       done = done_.load(std::memory_order_acquire)) {
    WaitForChange(done_, done);
  }
  if (idle_ != nullptr) AddIdle(begin);
}

}  // namespace quire::kernels::cpu
