// Where ranks run: as threads of this process, or as separate processes. Starts them, detects their
// end, ends them.
//
// Owned by the RankGroup's owner; called from the group's supervising thread alone. Invariants:
// 1. A rank is started again only when the previous one has ended, or has been given up.
// 2. Nothing here waits for a rank, nor for a child that has not become one yet.
// 3. A rank that was given up is reaped at a later check, if it ends after all.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "kernels/collectives/shared_group.h"
#include "worker/ranks/host_channel.h"
#include "worker/ranks/rank.h"

namespace quire {

// A rank's ends of the shared memory. They stay until it has ended.
struct RankStart {
  int rank = 0;
  HostChannel* channel = nullptr;  // the engine's side
  kernels::SharedGroup* group = nullptr;
  const AdapterArena* adapters = nullptr;  // absent where none are served
};

class RankHost {
 public:
  virtual ~RankHost() = default;

  virtual absl::Status Start(const RankStart& start) = 0;
  // How it has ended, "was killed by signal 9"; nothing while it runs. A rank that was never
  // started, or was given up, counts as ended.
  virtual std::optional<std::string> Ended(int rank) = 0;
  // Whether a signal has stopped it and none has continued it, as of the last Ended.
  virtual bool Stopped(int /*rank*/) const { return false; }
  // A descriptor that is readable when the rank has ended; −1 when there is none, so that the
  // caller must poll.
  virtual int WatchFd(int rank) const = 0;
  // Ends it from the outside, whatever it is doing; it ends soon after. False: that is not
  // possible.
  virtual bool Kill(int rank) = 0;
  // It was killed and does not end: it is no longer waited for.
  virtual void GiveUp(int rank) = 0;
};

// Threads of this process that build their programs with `build`.
std::unique_ptr<RankHost> MakeThreadRanks(RankBuilder build);

// The first command-line argument of a rank process.
struct RankProcessArgument {
  int parent_pid = 0;
  int channel_fd = -1;
  int group_fd = -1;
  int adapters_fd = -1;  // −1: there is no such memory
};
inline constexpr std::string_view kRankProcessFlag = "--rank-process=";
// Nothing when `argument` is not one of RankProcesses'.
std::optional<RankProcessArgument> ParseRankProcess(std::string_view argument);

// Children: this program again, with the argument above in front of `arguments`. They inherit the
// shared memory, standard output and standard error, nothing else, and die with this process (or
// with the thread that started them, which therefore lives as long as they do).
std::unique_ptr<RankHost> MakeProcessRanks(std::vector<std::string> arguments);

// Call this in such a child, at once: it makes the child die with its parent, ignore the signals
// meant for the parent, and close all descriptors that it was not given. False: the parent has gone
// already.
bool BecomeRankProcess(const RankProcessArgument& argument);
// Then serves over the inherited memory.
absl::Status ServeRankProcess(const RankProcessArgument& argument, const RankBuilder& build);

}  // namespace quire
