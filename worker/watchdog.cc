#include "worker/watchdog.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "common/check.h"

namespace quire {

HangDetector::Verdict HangDetector::Look(Micros now, const StepProgress& progress) {
  const Micros since = progress.running_since_us.load();
  const Micros limit = progress.running_limit_us.load();
  // A late check means that this process was not running, or hardly.
  const Micros late = last_look_ == 0 ? 0 : std::max<Micros>(0, now - last_look_ - 2 * interval_);
  last_look_ = now;
  if (since != step_since_) {
    step_since_ = since;
    excused_ = 0;
    hopeless_ = false;
    if (std::exchange(stuck_age_, std::nullopt).has_value()) return Verdict::kRecovered;
  }
  // Slow work while it warms up (first touches of weights and caches, a device that loads its code)
  // has no earlier step to compare with.
  const bool armed = progress.last_step_end_us.load() != 0 && !progress.device_lost.load();
  if (since == 0 || limit == 0 || !armed) return Verdict::kFine;
  if (now > since) excused_ += std::min(late, now - since - excused_);
  step_age_ = now - since - excused_;
  if (!stuck_age_.has_value()) {
    if (step_age_ <= limit) return Verdict::kFine;
    stuck_age_ = step_age_;
    return Verdict::kStuck;
  }
  if (grace_ == 0 || hopeless_ || step_age_ - *stuck_age_ < grace_) return Verdict::kFine;
  hopeless_ = true;
  return Verdict::kHopeless;
}

Watchdog::Watchdog(const StepProgress& progress, const Clock& clock, WatchdogOptions options)
    : progress_(progress), clock_(clock), options_(std::move(options)) {
  QUIRE_CHECK(options_.on_stuck && options_.on_recovered && options_.on_hopeless);
  QUIRE_CHECK(options_.interval > 0 && options_.grace >= 0);
  thread_ = std::thread([this] { Run(); });
}

Watchdog::~Watchdog() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Watchdog::Run() {
  pthread_setname_np(pthread_self(), "watchdog");
  HangDetector detector(options_.grace, options_.interval);
  std::unique_lock<std::mutex> lock(mutex_.native());
  while (!stopping_) {
    lock.unlock();
    const HangDetector::Verdict verdict = detector.Look(clock_.Now(), progress_);
    const std::string age = std::to_string(detector.step_age() / kMicrosPerMilli) + " ms";
    const std::string limit =
        std::to_string(progress_.running_limit_us.load() / kMicrosPerMilli) + " ms";
    if (verdict == HangDetector::Verdict::kStuck) {
      options_.on_stuck("a step has run for " + age + ", its limit is " + limit);
    } else if (verdict == HangDetector::Verdict::kRecovered) {
      options_.on_recovered("the step that was stuck has ended");
    } else if (verdict == HangDetector::Verdict::kHopeless) {
      options_.on_hopeless("a step has run for " + age + " and does not end; leaving");
    }
    lock.lock();
    if (!stopping_) wake_.wait_for(lock, std::chrono::microseconds(options_.interval));
  }
}

}  // namespace quire
