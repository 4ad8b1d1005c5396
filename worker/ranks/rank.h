// What one rank does: takes its setup, loads its part of the model, runs packets until it is told
// to leave.
//
// The same for a thread of the worker and for a process of its own; runs on the rank's one thread.
// Invariants:
// 1. Whatever goes wrong is told to the engine in one line, and takes the whole group down: a rank
//    never goes on alone.
// 2. A rank that has failed touches neither channel nor collectives any more.
#pragma once

#include <cstdint>
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

// Collectives of the first steps, while memory is touched and caches are cold, may wait so long.
inline constexpr int64_t kWarmUpWaitMicros = 60'000'000;

// The part of the model that this rank holds, with the state of rows.
class RankProgram {
 public:
  virtual ~RankProgram() = default;

  // Runs one packet to its end. A packet that is damaged and a device that fails are statuses; a
  // failed collective is asked for by the caller.
  virtual absl::Status Run(std::span<const std::byte> packet, StepResult& result) = 0;
  virtual RankReady Describe() const = 0;
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
