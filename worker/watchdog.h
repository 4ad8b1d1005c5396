// Ends a process whose engine hangs: a step over its limit is logged with the stacks of all
// threads, and the process exits after a grace period in which the router moves its work.
//
// Owner: main. HangDetector is pure and gets the time as an argument; Watchdog is the thread around
// it. Invariants:
//  1. A step is stuck when it has run for longer than its limit (StepProgress), not counting time
//     in which the watchdog itself did not run: a stopped process or machine has no stuck step.
//  2. A step that ends within the grace ends the alarm.
//  3. The watchdog never waits for the engine, nor for the log.
//  4. The first step that ends arms it; after the loss of a device the next step that ends does.
//     Until then no step is stuck.
#pragma once

#include <condition_variable>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "common/runtime/runtime.h"
#include "common/sync.h"
#include "worker/core/engine_io.h"

namespace quire {

inline constexpr Micros kWatchdogInterval = 200 * kMicrosPerMilli;

class HangDetector {
 public:
  enum class Verdict {
    kFine,
    kStuck,
    kRecovered,
    kHopeless
  };  // each state but kFine is reported once

  // `grace` 0: never hopeless. Checks come every `interval`.
  HangDetector(Micros grace, Micros interval) : grace_(grace), interval_(interval) {}

  Verdict Look(Micros now, const StepProgress& progress);
  // How long the step has run, not counting excluded time.
  Micros step_age() const { return step_age_; }

 private:
  Micros grace_;
  Micros interval_;
  Micros last_look_ = 0;   // 0: none yet
  Micros step_since_ = 0;  // of the step that was seen last
  Micros excused_ = 0;     // of its time
  Micros step_age_ = 0;
  std::optional<Micros> stuck_age_;  // the step's age when it was reported as stuck
  bool hopeless_ = false;
};

struct WatchdogOptions {
  Micros grace = 10 * kMicrosPerSecond;
  Micros interval = kWatchdogInterval;
  // On the watchdog's thread. `on_stuck` gets one line; `on_hopeless` must end the process.
  std::function<void(const std::string&)> on_stuck;
  std::function<void(const std::string&)> on_recovered;
  std::function<void(const std::string&)> on_hopeless;
};

class Watchdog {
 public:
  // `progress` and `clock` outlive this object. Starts to watch at once.
  Watchdog(const StepProgress& progress, const Clock& clock, WatchdogOptions options);
  ~Watchdog();

 private:
  void Run() ABSL_NO_THREAD_SAFETY_ANALYSIS;

  const StepProgress& progress_;
  const Clock& clock_;
  const WatchdogOptions options_;
  Mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire
