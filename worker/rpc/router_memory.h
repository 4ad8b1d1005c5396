// How much memory routers may make the worker hold: their frames that wait, what they are to be
// told and have not read, their connections.
//
// Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace quire {

// Even where the memory plan leaves nothing: connections of some routers and their largest frames.
inline constexpr size_t kLeastRouterMemory = size_t{128} << 20;

// `flag`: --max-router-memory-bytes, 0 where it is not set. `free_bytes`: what weights, workspace,
// keys and values leave of the memory that this worker may use; a quarter of that is for routers.
inline size_t RouterMemoryBytes(int64_t flag, int64_t free_bytes) {
  if (flag > 0) return static_cast<size_t>(flag);
  return std::max(kLeastRouterMemory, static_cast<size_t>(std::max<int64_t>(free_bytes, 0)) / 4);
}

// Of it, the share of one connection.
inline size_t RouterConnectionBytes(size_t router_memory) { return router_memory / 2; }

}  // namespace quire
