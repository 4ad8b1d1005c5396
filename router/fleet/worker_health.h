// Whether a worker can be trusted with work: which of its epochs ended in a death, how long it is
// left out after several, and how slowly it starts when it returns.
//
// Owner: the fleet, one per worker. Pure: time comes in as an argument.
//  1. A death is an epoch that ended without Draining, seen as a new epoch at reconnect or as a
//     refused connection; or a step that is stuck. A link that is lost or silent is none.
//  2. A death that a refused connection reported is taken back when that epoch greets again.
//  3. One epoch ends at most once; the end of a worker whose step is stuck is the same death.
//  4. After the first death a worker is not left out: one that was restarted serves at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/ids.h"
#include "common/runtime/runtime.h"

namespace quire {

// What a frame of a worker, or its silence, shows about the previous epoch.
enum class DeathNews : uint8_t {
  kNothing,
  kDied,       // it ended without Draining
  kTakenBack,  // it was counted as dead, and lives
  kLives,      // its link was lost, and the epoch is the same
};

struct HealthOptions {
  Micros backoff_min = kMicrosPerSecond;  // after the second death; doubles with each further one
  Micros backoff_max = 60 * kMicrosPerSecond;
  Micros forgiven_after = 60 * kMicrosPerSecond;  // an epoch that lived this long resets the count
  Micros slow_start = 3 * kMicrosPerSecond;       // until a worker that returned is used in full
};

class WorkerHealth {
 public:
  explicit WorkerHealth(const HealthOptions& options = {}) : options_(options) {}

  // A Hello.
  DeathNews Greeted(Epoch epoch, Micros now);
  void Draining() { draining_ = true; }
  void LinkLost(Micros now);
  // The worker's address refuses connections: its process is gone.
  DeathNews Refused(Micros now);
  // What a frame reports of the running step.
  DeathNews StepSeen(bool stuck, Micros now);

  // The worker is to be left out for now. The fleet decides whether the pool can do without it.
  bool Ejected(Micros now) const { return now < ejected_until_; }
  Micros ejected_until() const { return ejected_until_; }
  // From then on it is not ejected and does not start slowly.
  Micros calm_from() const {
    return std::max(ejected_until_, returned_at_ ? *returned_at_ + options_.slow_start : 0);
  }
  // Deaths in a row, each too soon after the previous one.
  uint32_t deaths() const { return deaths_; }
  // Attempts at once while it starts slowly, of the `rows` that it has; empty: no bound.
  std::optional<uint32_t> SlowStartCap(Micros now, uint32_t rows) const;

 private:
  void Died(Micros now);
  void LeaveOut(Micros now);

  HealthOptions options_;
  std::optional<Epoch> epoch_;
  bool draining_ = false;
  bool linked_ = false;
  bool stuck_ = false;    // its step is stuck, and that has been counted
  bool refused_ = false;  // its end has been counted, because of a refused connection
  uint32_t deaths_ = 0;
  Micros alive_since_ = 0;  // of this epoch
  Micros ejected_until_ = 0;
  std::optional<Micros> returned_at_;
};

}  // namespace quire
