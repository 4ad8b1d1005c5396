#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
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

struct ThreadBackground::State {
  struct Job {
    std::function<void()> work;
    std::function<void()> done;
  };
  Executor* executor = nullptr;
  size_t max_queued = 0;
  std::mutex mutex;  // guards jobs and stopping
  std::condition_variable ready;
  std::deque<Job> jobs;
  bool stopping = false;
  std::vector<std::thread> threads;

  void Work() {
    while (true) {
      Job job;
      {
        std::unique_lock<std::mutex> lock(mutex);
        ready.wait(lock, [this] { return stopping || !jobs.empty(); });
        if (stopping) return;
        job = std::move(jobs.front());
        jobs.pop_front();
      }
      job.work();
      job.work = nullptr;  // what `done` holds too has its end where that runs
      executor->Post(std::move(job.done));
    }
  }
};

ThreadBackground::ThreadBackground(Executor& executor, int threads, size_t max_queued)
    : state_(std::make_unique<State>()) {
  QUIRE_CHECK(threads > 0);
  state_->executor = &executor;
  state_->max_queued = max_queued;
  for (int i = 0; i < threads; ++i) {
    state_->threads.emplace_back([state = state_.get()] { state->Work(); });
  }
}

ThreadBackground::~ThreadBackground() { Stop(); }

void ThreadBackground::Stop() {
  std::deque<State::Job> dropped;  // outside the lock: what ends with them may do anything
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopping = true;
    dropped.swap(state_->jobs);
  }
  state_->ready.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
  state_->threads.clear();
}

bool ThreadBackground::Run(std::function<void()> work, std::function<void()> done) {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->stopping || state_->jobs.size() >= state_->max_queued) return false;
    state_->jobs.push_back({std::move(work), std::move(done)});
  }
  state_->ready.notify_one();
  return true;
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
