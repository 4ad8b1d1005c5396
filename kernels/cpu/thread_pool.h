// The persistent threads of one backend: they spin briefly between jobs, then sleep.
//
// Owned by the backend; Run is called by the engine's thread only, which takes part in every job.
// Invariants:
// 1. A job is a function of a task index; each index runs exactly once, on any thread.
// 2. Run returns when all tasks have ended and their writes are seen by the caller.
// 3. A waiting thread spins at most kSpinMicroseconds, since the router shares the cores.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace quire::kernels::cpu {

class ThreadPool {
 public:
  static constexpr int kSpinMicroseconds = 30;

  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

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
  using Function = void (*)(const void* context, int index, int thread);

  void RunErased(int count, Function function, const void* context);
  void WorkerLoop(int thread);
  void TakeTasks(int thread);

  std::vector<std::thread> workers_;
  // The job; written before the ticket, read by threads that drew one of its tasks.
  Function function_ = nullptr;
  const void* context_ = nullptr;
  // {tasks of the job, next task}: one addition draws a task together with the job's size, so a
  // thread that wakes late can only draw a task of the current job, or none.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};  // raised with each job; sleepers wait for it
  alignas(64) std::atomic<int> done_{0};             // tasks of the job that have ended
  std::atomic<bool> stop_{false};
};

}  // namespace quire::kernels::cpu
