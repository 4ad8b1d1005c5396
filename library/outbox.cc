#include "library/outbox.h"

#include <mutex>
#include <utility>

namespace quire {
namespace {

constexpr size_t kMaxTakenBytes = 8u << 20;  // and the event that goes past it

}  // namespace

void Outbox::Push(Event event) {
  {
    const MutexLock lock(mutex_);
    events_.push_back(std::move(event));
  }
  ready_.notify_one();
}

bool Outbox::Take(std::chrono::milliseconds limit, bool forever,
                  std::vector<Event>& events) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  std::unique_lock<std::mutex> lock(mutex_.native());
  const auto is_ready = [this]()
                            ABSL_NO_THREAD_SAFETY_ANALYSIS { return closed_ || !events_.empty(); };
  if (forever) {
    ready_.wait(lock, is_ready);
  } else {
    ready_.wait_for(lock, limit, is_ready);
  }
  if (closed_) return false;
  for (size_t bytes = 0; bytes < kMaxTakenBytes && !events_.empty();) {
    bytes += events_.front().json.size();
    events.push_back(std::move(events_.front()));
    events_.pop_front();
  }
  if (!events_.empty()) ready_.notify_one();
  return true;
}

void Outbox::Close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  ready_.notify_all();
}

}  // namespace quire
