// The real event loop: one thread that runs an Asio io_context, behind the Executor interface.
//
// Owner: main. Post and PostAt may be called on any thread; everything else on the loop's thread.
// Run returns after Stop. Edges that use Asio themselves (HTTP, front) use context() and so share
// the loop's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/runtime/runtime.h"
#include "common/runtime/work_queue.h"

namespace boost::asio {
class io_context;
}

namespace quire {

class RealClock final : public Clock {
 public:
  Micros Now() const override;
  int64_t UnixSeconds() const override;
};

class AsioExecutor final : public Executor {
 public:
  AsioExecutor();
  ~AsioExecutor() override;

  void Post(std::function<void()> work) override;
  TimerId PostAt(Micros due, std::function<void()> work) override;
  bool Cancel(TimerId timer) override;
  const Clock& clock() const override { return clock_; }

  // A function for other threads that runs `work` on the loop: it neither allocates nor waits for
  // the loop, and calls that come before the work has begun count as one. The executor outlives it.
  std::function<void()> MakeBell(std::function<void()> work);

  // Runs the loop on the calling thread until Stop.
  void Run();
  // Any thread.
  void Stop();
  boost::asio::io_context& context();

  // Calls `handler` on the loop for every SIGTERM and SIGINT that the process gets.
  void OnTerminationSignal(std::function<void(int signal)> handler);

 private:
  struct State;
  RealClock clock_;
  std::unique_ptr<State> state_;
};

// OpenSSL's generator, seeded by the operating system: an observer of some numbers can't compute
// earlier or later ones. One thread; after a fork only one of the two processes may continue to use
// it.
class RealRng final : public Rng {
 public:
  uint64_t Next() override;

 private:
  std::array<uint64_t, 32> numbers_{};  // drawn at once, used from the front
  size_t next_ = numbers_.size();
};

// A few threads of low priority with one bounded queue, in which tenants take turns. What `work`
// holds is released before `done` is posted: objects that both hold end on the executor.
class ThreadBackground final : public Background {
 public:
  // With one thread, all work may be large.
  ThreadBackground(Executor& executor, int threads, const WorkLimits& limits);
  ThreadBackground(Executor& executor, int threads, size_t max_queued)
      : ThreadBackground(executor, threads,
                         WorkLimits{.max_queued = max_queued, .max_of_owner = max_queued}) {}
  ~ThreadBackground() override;
  bool Run(std::function<void()> work, std::function<void()> done) override;
  bool RunFor(const WorkShare& share, std::function<void()> work,
              std::function<void()> done) override;
  // Waits for the running work and drops the queue; Run returns false from then on. Call it before
  // the data of the work is destroyed; it may be called repeatedly, by one thread.
  void Stop();

  // Any thread. The work that waits now; the work that was refused because the queue, or its
  // owner's part, was full.
  size_t queued() const;
  uint64_t refused() const;
  uint64_t refused_of_owners() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class RealFiles final : public Files {
 public:
  // NOT_FOUND, PERMISSION_DENIED or RESOURCE_EXHAUSTED, naming the path.
  absl::StatusOr<std::string> Read(const std::string& path, size_t max_bytes) override;
};

}  // namespace quire
