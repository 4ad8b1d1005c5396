// The work of one rank: reads its setup, loads its part of the model, and runs packets until the
// engine ends it.
//
// The same for a thread of the worker and for a process of its own; runs on the rank's one thread.
// Invariants:
// 1. A rank reports every fault to the engine in one line, and every fault takes the whole group
//    down: a rank never continues alone.
// 2. A rank that has failed touches neither channel nor collectives any more.
// 3. Results leave in the order of their packets. While a device computes, its rank looks for the
//    next packet, so that the device has it before it is done.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/status.h"
#include "kernels/collectives/shared_group.h"
#include "kernels/communicator.h"
#include "worker/ranks/adapter_arena.h"
#include "worker/ranks/host_channel.h"
#include "worker/ranks/rank_messages.h"
#include "worker/runner/step_masks.h"

namespace quire {

// Collectives of a start may wait this long, until the last rank has loaded and each shape of step
// has run. So may those of the first steps, while memory is touched and caches are cold.
inline constexpr int64_t kWarmUpWaitMicros = 60'000'000;
// While a step is captured no rank computes: only the collectives may take their time.
inline constexpr int64_t kCaptureWaitMicros = 20'000'000;

// The part of the model that this rank holds, with the state of rows.
class RankProgram {
 public:
  virtual ~RankProgram() = default;

  // Runs one packet to its end. A damaged packet and a failing device are statuses; the caller
  // checks for a failed collective.
  virtual absl::Status Run(std::span<const std::byte> packet, StepResult& result) = 0;

  // Steps that may be launched and not yet collected; with 1 there is only Run.
  virtual int MaxInFlight() const { return 1; }
  // Run in two halves: queues a step behind those in flight; checks whether the oldest of these has
  // ended; waits for its result and returns it.
  virtual absl::Status Launch(std::span<const std::byte> /*packet*/) { std::abort(); }
  virtual bool Ready() { return true; }
  virtual absl::Status Collect(StepResult& /*result*/) { std::abort(); }

  // From the next packet on the slot holds this content of RankParts::adapters.
  virtual absl::Status SetAdapter(const RankAdapterSlot& /*slot*/) { std::abort(); }

  virtual RankReady Describe() = 0;
  // Free memory of a device that has its own; otherwise 0.
  virtual int64_t DeviceFreeBytes() { return 0; }
};

// Called now and then while it loads, so that a slow disk is not mistaken for a stuck rank.
using RankProgress = std::function<void()>;
// What a rank's program is built with; all of it outlives the program.
struct RankParts {
  const RankSetup& setup;
  kernels::Communicator& communicator;
  StepMasks& masks;
  AdapterArena* adapters = nullptr;  // absent where none are served
};
using RankBuilder = std::function<absl::StatusOr<std::unique_ptr<RankProgram>>(
    const RankParts& parts, const RankProgress& progress)>;

// The collectives of the rank's group; the result outlives ServeRank.
using GroupOpener = std::function<absl::StatusOr<kernels::SharedGroup*>(const RankSetup& setup)>;

// `adapters_fd`, which it takes over, is of the AdapterArena; −1: there is none. OK: the engine
// sent the order to leave, or has closed the channel.
absl::Status ServeRank(HostChannel& channel, const GroupOpener& open_group,
                       const RankBuilder& build, int adapters_fd = -1);

}  // namespace quire
