// The blocks that one sequence holds, in every cache kind.
//
// Owner: Sequence; only KvCache changes them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "worker/kv/block_pool.h"

namespace quire {

// One sequence's blocks of one kind, by logical block. Entries below first_live have been released,
// or were never needed after a cache hit. Of states only the last entry and those at the borders
// that are kept hold a block: each is also where the states behind the blocks before it were.
struct KindBlocks {
  int32_t first_live = 0;
  std::vector<BlockId> blocks;
};

// Models rarely have more kinds: values that are kept by kind need no memory of their own.
inline constexpr size_t kUsualKinds = 2;

struct SequenceBlocks {
  absl::InlinedVector<KindBlocks, kUsualKinds> kinds;  // empty: nothing is held
  // Borders whose states are kept for later sequences, in tokens: where a cached prefix without a
  // state ends, and where the prompt does.
  int64_t branch = 0;
  int64_t prompt_border = 0;
};

}  // namespace quire
