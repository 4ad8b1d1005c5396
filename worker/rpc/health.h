// Whether this worker lives, is ready, and would serve a request now: read from atomics, so that an
// answer never waits for the engine or the rpc thread.
//
// Owner: main, which outlives all readers. Any thread.
#pragma once

#include <atomic>
#include <string>

#include "common/runtime/runtime.h"
#include "worker/core/engine_io.h"

namespace quire {

// A step (real, or the idle probe) must have ended within this time.
inline constexpr Micros kHealthyStepAge = 10 * kMicrosPerSecond;

struct HealthReport {
  bool ok = false;
  std::string why;  // one line; "ok" when it is
};

class Health {
 public:
  explicit Health(const Clock& clock) : clock_(clock) {}

  // The engine's progress, once there is an engine; it outlives this object.
  void SetProgress(const StepProgress* progress) { progress_ = progress; }
  void SetListening(bool listening) { listening_ = listening; }
  void SetDraining() { draining_ = true; }

  // Listening and not draining.
  HealthReport Ready() const;
  // Ready, a step ended within kHealthyStepAge, and none is over its limit.
  HealthReport Serving() const;

 private:
  const Clock& clock_;
  std::atomic<const StepProgress*> progress_{nullptr};
  std::atomic<bool> listening_{false};
  std::atomic<bool> draining_{false};
};

}  // namespace quire
