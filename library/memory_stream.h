// A frame stream between two sessions of one process: what a connection is between two.
//
// Owner: one executor, on which both ends live. Frames go from one turn of the loop to the next; as
// an end always reads, a write stays blocked no longer than that.
#pragma once

#include <memory>

#include "common/runtime/runtime.h"

namespace quire {

// What may wait towards one end before Write says so.
inline constexpr size_t kMemoryStreamBytes = 4u << 20;

struct MemoryStreams {
  std::unique_ptr<FrameStream> near, far;
};
// `executor` outlives both.
MemoryStreams MakeMemoryStreams(Executor& executor);

}  // namespace quire
