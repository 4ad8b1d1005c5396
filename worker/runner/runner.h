// Executes step packets in order on some device; the engine sees kernels only through it.
//
// Owner: the engine's creator; called from the engine's thread only.
//
// Invariants:
// 1. Steps complete in the order in which they were launched.
// 2. At most MaxInFlight() steps are launched and not yet collected.
// 3. A device may be lost (a rank has died, or does not answer), which is a state and not an error
//    of a call. From then on Launch does nothing and Collect returns nothing, until Restore reports
//    that the device is back, with no row and no page of before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "worker/core/step_plan.h"

namespace quire::kernels {
class AdapterWeights;
}

namespace quire {

class Runner {
 public:
  virtual ~Runner() = default;

  // Starts a step. `packet` (see step_packet.h) is only read during the call.
  virtual void Launch(std::span<const std::byte> packet, int64_t now_us) = 0;

  // When the oldest step in flight can be collected without time passing: 0 on a real device, where
  // Collect waits for it; in simulation the virtual time at which it ends. Requires: a step in
  // flight.
  virtual int64_t ReadyAt() const { return 0; }

  // The result of the oldest step in flight; waits for it. `result` is overwritten.
  virtual void Collect(StepResult& result) = 0;

  virtual int MaxInFlight() const { return 1; }

  // From the next step on the slot holds this adapter. Requires: no row of a step in flight or of a
  // later one names what the slot held before. Runners that never get one need not override it.
  virtual void SetAdapter(int /*slot*/,
                          std::shared_ptr<const kernels::AdapterWeights> /*adapter*/) {
    std::abort();
  }

  // Whether the device has been lost since Restore last returned true, or ever. If this is true
  // after a call of Collect, the result of that call is void.
  virtual bool Lost() const { return false; }
  // Requires: Lost(). True once the device is back: plans begin again with number 1. Does not wait.
  virtual bool Restore() { return false; }
};

}  // namespace quire
