// What one rank does: takes its setup, loads its part of the model, runs packets until it is told
// to leave.
//
// The same for a thread of the worker and for a process of its own; runs on the rank's one thread.
// Invariants:
// 1. Whatever goes wrong is told to the engine in one line, and takes the whole group down: a rank
//    never goes on alone.
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
#include "worker/ranks/host_channel.h"
#include "worker/ranks/rank_messages.h"

namespace quire {

// Collectives of a start, until the last rank has loaded and each shape of step has run, and those
// of the first steps, while memory is touched and caches are cold, may wait so long.
inline constexpr int64_t kWarmUpWaitMicros = 60'000'000;
// While a step is captured nobody computes: only what joins the ranks may take its time.
inline constexpr int64_t kCaptureWaitMicros = 20'000'000;

// The part of the model that this rank holds, with the state of rows.
class RankProgram {
 public:
  virtual ~RankProgram() = default;

  // Runs one packet to its end. A packet that is damaged and a device that fails are statuses; a
  // failed collective is asked for by the caller.
  virtual absl::Status Run(std::span<const std::byte> packet, StepResult& result) = 0;

  // Steps that may be launched and not yet collected; with 1 there is only Run.
  virtual int MaxInFlight() const { return 1; }
  // As Run, in two halves: queues a step behind those in flight; whether the oldest of these has
  // ended; its result, for which it waits.
  virtual absl::Status Launch(std::span<const std::byte> /*packet*/) { std::abort(); }
  virtual bool Ready() { return true; }
  virtual absl::Status Collect(StepResult& /*result*/) { std::abort(); }

  virtual RankReady Describe() = 0;
  // Free memory of a device that has its own; 0 else.
  virtual int64_t DeviceFreeBytes() { return 0; }
};

// Told now and then while it loads, so that a slow disk is not taken for a rank that is stuck.
using RankProgress = std::function<void()>;
using RankBuilder = std::function<absl::StatusOr<std::unique_ptr<RankProgram>>(
    const RankSetup& setup, kernels::Communicator& communicator, const RankProgress& progress)>;

// The collectives of the rank's group; the result outlives ServeRank.
using GroupOpener = std::function<absl::StatusOr<kernels::SharedGroup*>(const RankSetup& setup)>;

// OK: it was told to leave, or the engine has closed the channel.
absl::Status ServeRank(HostChannel& channel, const GroupOpener& open_group,
                       const RankBuilder& build);

}  // namespace quire
