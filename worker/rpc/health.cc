#include "worker/rpc/health.h"

namespace quire {

HealthReport Health::Ready() const {
  if (draining_) return {false, "draining"};
  if (!listening_) return {false, "starting: the model is being loaded"};
  return {true, "ok"};
}

HealthReport Health::Serving() const {
  HealthReport ready = Ready();
  if (!ready.ok) return ready;
  const StepProgress* progress = progress_;
  if (progress == nullptr) return {false, "starting: there is no engine yet"};
  if (progress->device_lost) {
    return {false, "recovering: the device was lost and is being restarted"};
  }
  const Micros now = clock_.Now();
  const Micros since = progress->running_since_us;
  const Micros limit = progress->running_limit_us;
  if (since != 0 && limit != 0 && now - since > limit) {
    return {false, "stuck: a step has run for " + std::to_string((now - since) / kMicrosPerMilli) +
                       " ms, its limit is " + std::to_string(limit / kMicrosPerMilli) + " ms"};
  }
  const Micros age = now - progress->last_step_end_us;
  if (age > kHealthyStepAge) {
    return {false, "stuck: no step has ended for " + std::to_string(age / kMicrosPerSecond) + " s"};
  }
  return {true, "ok"};
}

}  // namespace quire
