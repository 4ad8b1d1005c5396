// One generation of a group of ranks: the shared memory between a start and the end of its ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/collectives/shared_group.h"
#include "worker/ranks/host_channel.h"
#include "worker/ranks/rank_group.h"

namespace quire {

struct RankGroup::Generation {
  uint64_t number = 0;  // from 1
  std::unique_ptr<kernels::SharedGroup> collectives;
  std::vector<std::unique_ptr<HostChannel>> channels;  // by rank, the engine's side
  std::vector<bool> greeted;                           // by rank; belongs to the supervising thread
};

}  // namespace quire
