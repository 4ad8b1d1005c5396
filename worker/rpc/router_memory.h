// How much memory the worker may hold for routers: frames that wait, output that they have not
// read, and their connections.
//
// Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace quire {

// The minimum, even where the memory plan leaves nothing: connections of some routers and their
// largest frames.
inline constexpr size_t kLeastRouterMemory = size_t{128} << 20;

// `flag`: --max-router-memory-bytes, 0 where it is not set. `free_bytes`: the part of this worker's
// memory that weights, workspace, keys and values leave; a quarter of that is for routers.
inline size_t RouterMemoryBytes(int64_t flag, int64_t free_bytes) {
  if (flag > 0) return static_cast<size_t>(flag);
  return std::max(kLeastRouterMemory, static_cast<size_t>(std::max<int64_t>(free_bytes, 0)) / 4);
}

// The share of one connection.
inline size_t RouterConnectionBytes(size_t router_memory) { return router_memory / 2; }

}  // namespace quire
