// Gives sequences the blocks that their tokens need, in every cache kind, and takes them back.
//
// Owner: the scheduler, on the engine's thread. Pure: no clock, no I/O.
//
// Invariants:
// 1. A sequence of planned length L holds, in the full kind, the blocks [0, ⌈L / B⌉), and in a
// sliding kind
//    those of them that some query at or after the committed length can still see.
// 2. Extending is all or nothing over the kinds; running out is a result.
// 3. Every reference in the pool is named by exactly one block table. A block that forks share is
//    named by several: all tokens that they share are in it, and one of them at most writes on.
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

  // A table of its own for the first `length` tokens of `from`, sharing their blocks: those that a
  // query at or after `length` sees. Requires: `from` still holds these. A last block that is only
  // partly filled is shared too: who stands at its end goes on writing it, the others need TakeOwn
  // before they do.
  SequenceBlocks Fork(const SequenceBlocks& from, int64_t length);

  // Pages that TakeOwn would take.
  int64_t PagesToOwn(const SequenceBlocks& blocks, int64_t position) const;

  // Copy on write: the blocks at `position` that others name too are replaced by new ones. Adds
  // what has to be copied to `copies`, which run before anything that their plan computes. The old
  // references are the result, to be released when that plan has been committed.
  // Requires: PagesToOwn pages are free.
  SequenceBlocks TakeOwn(SequenceBlocks& blocks, int64_t position,
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
  // Whether somebody else names the block, be it the prefix index.
  bool Shared(BlockId block) const { return pool_.references(block) > 1 || pool_.published(block); }
  int64_t BlockCount(int64_t length) const {
    return (length + shape_.block_size - 1) / shape_.block_size;
  }

  CacheShape shape_;
  BlockPool pool_;
};

}  // namespace quire
