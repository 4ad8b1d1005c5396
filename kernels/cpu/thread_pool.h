// The persistent threads of one backend: they spin briefly between jobs, then sleep.
//
// Owned by the backend; Run is called by the engine's thread only, which takes part in every job.
// Invariants:
// 1. A job is a function of a task index; each index runs exactly once, on any thread.
// 2. Run returns when all tasks have ended and their writes are seen by the caller.
// 3. A waiting thread spins at most kSpinMicroseconds, since the router shares the cores.
// 4. With several memory nodes, threads and tasks are dealt to them (numa.h). A thread of the pool
//    stays on its node, the caller's is where the system puts it. A thread takes its node's tasks
//    first, and those of other nodes when there are no more.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "kernels/cpu/numa.h"

namespace quire::kernels::cpu {

class ThreadPool {
 public:
  static constexpr int kSpinMicroseconds = 30;

  // Without nodes threads run anywhere.
  explicit ThreadPool(int threads, std::vector<NumaNode> nodes = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  // From now on adds the seconds that threads wait within jobs, as their mean, to *seconds. Null:
  // no clock is read.
  void CountIdle(double* seconds) { idle_ = seconds; }
  const std::vector<NumaNode>& nodes() const { return nodes_; }  // each has a thread

  // task(index, thread) for index in [0, count), thread in [0, threads()).
  template <class Task>
  void Run(int count, const Task& task) {
    RunErased(
        count,
        [](const void* context, int index, int thread) {
          (*static_cast<const Task*>(context))(index, thread);
        },
        &task);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Function = void (*)(const void* context, int index, int thread);

  void RunErased(int count, Function function, const void* context);
  void WorkerLoop(int thread);
  void TakeTasks(int thread, int own_node);
  void AddIdle(Clock::time_point begin);

  const int threads_;
  const std::vector<NumaNode> nodes_;
  std::vector<std::thread> workers_;
  // The job; written before the tickets, read by threads that drew one of its tasks.
  Function function_ = nullptr;
  const void* context_ = nullptr;
  int count_ = 0;
  double* idle_ = nullptr;
  std::deque<std::atomic<Clock::rep>> last_end_;  // of a task, by thread; with idle_
  // {end of a node's tasks, next task}: one addition draws a task together with their end, so a
  // thread that wakes late can only draw a task of the current job, or none.
  struct alignas(64) Ticket {
    std::atomic<uint64_t> value{0};
  };
  std::deque<Ticket> tickets_;                       // by node; one without nodes
  alignas(64) std::atomic<uint32_t> generation_{0};  // raised with each job; sleepers wait for it
  alignas(64) std::atomic<int> done_{0};             // tasks of the job that have ended
  std::atomic<bool> stop_{false};
};

}  // namespace quire::kernels::cpu
