// Gives sequences the blocks that their tokens need, in every cache kind, and takes them back.
//
// Owner: the scheduler, on the engine's thread. Pure: no clock, no I/O.
//
// Invariants:
// 1. A sequence of planned length L holds, in the full kind, the blocks [0, ⌈L / B⌉), and in a
// sliding kind
//    those of them that some query at or after the committed length can still see.
// 2. Extending is all or nothing over the kinds; running out is a result.
// 3. Every reference in the pool is named by exactly one block table; a block that forks share is
//    named by several and is never written again: all of its tokens are behind their lengths.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker/core/cache_shape.h"
#include "worker/core/step_plan.h"
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

  // A second sequence that begins with the first `length` tokens of `parent`: `child`, which holds
  // nothing, shares its full blocks and gets a page of its own in each group for the partial last
  // one (none when `length` ends a block), with the copies that fill it appended to `copies`.
  // False, and nothing has changed, when too few pages are free.
  // Requires: the parent's tokens [0, length) have been planned, in no later plan than the one
  // that carries the copies, and none of the parent's blocks below `length` has been given back
  // except those behind a window at `length`. Copies run before anything that their plan computes,
  // so what is copied must have been planned earlier; the parent (or whoever holds its partial
  // block) gives it back only after that plan has been committed. From then on either may be
  // extended, released or forked again by itself.
  bool Fork(const SequenceBlocks& parent, int64_t length, SequenceBlocks& child,
            std::vector<PlannedCopy>& copies);

  // Pages that Release would give back: those of blocks that nobody else holds.
  int64_t PagesToReturn(const SequenceBlocks& blocks) const;

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
