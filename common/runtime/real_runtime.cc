#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/runtime/asio_executor.h"
#include "common/sync.h"

namespace quire {

uint64_t RealRng::Next() {
  if (next_ == numbers_.size()) {
    auto* bytes = reinterpret_cast<unsigned char*>(numbers_.data());
    QUIRE_CHECK_MSG(RAND_bytes(bytes, sizeof(numbers_)) == 1, "the system gives no random numbers");
    next_ = 0;
  }
  return std::exchange(numbers_[next_++], 0);  // what was given out is not kept
}

constexpr int kBackgroundNice = 10;

struct ThreadBackground::State {
  State(Executor& loop, int count, const WorkLimits& limits)
      : executor(loop), max_large(std::max(1, count - 1)), queue(limits) {}

  Executor& executor;
  const int max_large;       // at once
  mutable std::mutex mutex;  // guards all below but the threads
  std::condition_variable ready;
  WorkQueue queue;
  int running_large = 0;
  bool stopping = false;
  uint64_t refused = 0;
  uint64_t refused_of_owners = 0;
  std::vector<std::thread> threads;

  // Waits for a piece of work that this thread may take. None: it is over.
  std::optional<WorkQueue::Job> Next() {
    std::unique_lock<std::mutex> lock(mutex);
    std::optional<WorkQueue::Job> job;
    ready.wait(lock, [&] {
      if (!stopping) job = queue.Pop(running_large < max_large);
      return stopping || job.has_value();
    });
    if (job && queue.IsLarge(*job)) ++running_large;
    return job;
  }

  void Work() {
    // For this thread alone. A loop that wakes up takes the core from it at once; otherwise both
    // would share the core.
    setpriority(PRIO_PROCESS, 0, kBackgroundNice);
    while (std::optional<WorkQueue::Job> job = Next()) {
      const auto& cancelled = job->share.cancelled;
      if (cancelled == nullptr || !*cancelled) job->work();
      // Objects that `done` holds too are destroyed where it runs.
      job->work = nullptr;
      job->share.cancelled = nullptr;
      if (queue.IsLarge(*job)) {
        std::lock_guard<std::mutex> lock(mutex);
        --running_large;
        ready.notify_one();  // what had to wait for that
      }
      executor.Post(std::move(job->done));
    }
  }
};

ThreadBackground::ThreadBackground(Executor& executor, int threads, const WorkLimits& limits)
    : state_(std::make_unique<State>(executor, threads, limits)) {
  QUIRE_CHECK(threads > 0);
  for (int i = 0; i < threads; ++i) {
    state_->threads.emplace_back([state = state_.get()] { state->Work(); });
  }
}

ThreadBackground::~ThreadBackground() { Stop(); }

void ThreadBackground::Stop() {
  std::vector<WorkQueue::Job> dropped;  // outside the lock: destructors may do anything
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopping = true;
    while (auto job = state_->queue.Pop(true)) dropped.push_back(*std::move(job));
  }
  state_->ready.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
  state_->threads.clear();
}

bool ThreadBackground::Run(std::function<void()> work, std::function<void()> done) {
  constexpr char kHouse[] = " ";  // no tenant's name
  return RunFor({.owner = kHouse}, std::move(work), std::move(done));
}

bool ThreadBackground::RunFor(const WorkShare& share, std::function<void()> work,
                              std::function<void()> done) {
  std::deque<WorkQueue::Job> cancelled;
  WorkQueue::Answer answer = WorkQueue::Answer::kFull;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->stopping) return false;
    WorkQueue& queue = state_->queue;
    WorkQueue::Job job{share, std::move(work), std::move(done)};
    answer = queue.Push(std::move(job));
    if (answer != WorkQueue::Answer::kQueued) {
      cancelled = queue.TakeCancelled(share.owner);
      // The first Push has not taken it.
      if (!cancelled.empty())
        answer = queue.Push(std::move(job));  // NOLINT(bugprone-use-after-move)
    }
    if (answer == WorkQueue::Answer::kFull) ++state_->refused;
    if (answer == WorkQueue::Answer::kOwnerFull) ++state_->refused_of_owners;
  }
  for (WorkQueue::Job& job : cancelled) state_->executor.Post(std::move(job.done));
  if (answer != WorkQueue::Answer::kQueued) return false;
  state_->ready.notify_one();
  return true;
}

size_t ThreadBackground::queued() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->queue.size();
}

uint64_t ThreadBackground::refused() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->refused;
}

uint64_t ThreadBackground::refused_of_owners() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->refused_of_owners;
}

absl::StatusOr<std::string> RealFiles::Read(const std::string& path, size_t max_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, AbslView(path));
  }
  std::string content;
  char buffer[65536];
  absl::Status status;
  while (true) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) status = absl::ErrnoToStatus(errno, AbslView(path));
    if (count <= 0) break;
    if (content.size() + count > max_bytes) {
      status = absl::ResourceExhaustedError(
          AbslView(path + ": is larger than the limit of " + std::to_string(max_bytes) + " bytes"));
      break;
    }
    content.append(buffer, count);
  }
  close(fd);
  if (!status.ok()) return status;
  return content;
}

}  // namespace quire
