// Gives sequences the blocks that their tokens need, in every cache kind, and takes them back.
//
// Owner: the scheduler, on the engine's thread. Pure: no clock, no I/O.
//
// Invariants:
// 1. A sequence of planned length L holds, in the full kind, the blocks [0, ⌈L / B⌉), and in a
// sliding kind
//    those of them that some query at or after the committed length can still see.
// 2. Extending is all or nothing over the kinds; running out is a result.
// 3. Every reference in the pool is named by exactly one block table.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker/core/cache_shape.h"
#include "worker/kv/block_pool.h"

namespace quire {

// One sequence's blocks of one kind, by logical block. Entries below first_live have been given
// back.
struct KindBlocks {
  int32_t first_live = 0;
  std::vector<BlockId> blocks;
};

struct SequenceBlocks {
  std::vector<KindBlocks> kinds;  // empty: nothing is held
};

class KvCache {
 public:
  KvCache(const CacheShape& shape, std::function<void(int32_t)> on_page_freed);

  // Pages that Extend would take.
  int64_t PagesToExtend(const SequenceBlocks& blocks, int64_t length) const;

  // Makes room for `length` tokens. False, and nothing has changed, when too few pages are free.
  bool Extend(SequenceBlocks& blocks, int64_t length);

  // Gives back the blocks that no query at a position ≥ `computed` can see.
  void FreeBehindWindow(SequenceBlocks& blocks, int64_t computed);

  void Release(SequenceBlocks& blocks);

  // Pages that a sequence of `length` tokens holds at most at one time when it is computed in
  // chunks of at most `chunk` tokens.
  int64_t PeakPages(int64_t length, int64_t chunk) const;

  const CacheShape& shape() const { return shape_; }
  const BlockPool& pool() const { return pool_; }

  // `tables`: all block tables there are.
  void CheckInvariants(std::span<const SequenceBlocks* const> tables) const;

 private:
  int64_t BlockCount(int64_t length) const {
    return (length + shape_.block_size - 1) / shape_.block_size;
  }

  CacheShape shape_;
  BlockPool pool_;
};

}  // namespace quire
