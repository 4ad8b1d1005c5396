// Gives sequences the blocks that their tokens need, in every cache kind, frees them, and keeps
// what has been computed for later sequences with the same beginning.
//
// Owner: the scheduler, on the engine's thread. Pure: no clock, no I/O. kv_cache.cc manages blocks
// and pages, kv_cache_prefix.cc what is shared by content.
//
// Invariants:
// 1. A sequence of planned length L holds, in the full kind, the blocks [0, ⌈L / B⌉), and in a
// sliding kind those of them that some query at or after the committed length can still see.
// 2. Extending is all or nothing over the kinds; running out is a result. Evictable blocks are used
//    before anything is refused.
// 3. Every reference in the pool is named by exactly one block table; a block that forks share is
//    named by several and is never written again: its last token is before their lengths.
// 4. A published block is full and its keys and values have been written. One is published per
//    (kind, hash); it is withdrawn, and the withdrawal is reported, before its pages are used for
//    anything else.
// 5. A block of states holds the state at its end once a later token has been computed, or as many
//    as fill it. The last one of a sequence is written in place: who shares it copies it first.
// 6. With a full kind, eviction takes ends of chains before the blocks that they continue, least
//    recently used first. An inner block may be evicted only where a running sequence continues a
//    chain on its own copy.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "common/cached_prefix.h"
#include "common/counted.h"
#include "worker/core/cache_shape.h"
#include "worker/core/step_plan.h"
#include "worker/kv/block_pool.h"
#include "worker/kv/cache_event_log.h"
#include "worker/kv/prefix_chain.h"
#include "worker/kv/prefix_index.h"
#include "worker/kv/sequence_blocks.h"

namespace quire {

struct KvCacheOptions {
  CacheShape shape;
  bool prefix_caching = false;
  uint64_t hash_mask = ~uint64_t{0};  // bits of a block's hash that are used; fewer only in tests
  std::function<void(int32_t)>
      on_page_freed;  // called with each page that becomes free; may be empty
};

// Since the start.
struct CacheTotals {
  uint64_t queried_tokens = 0;  // of sequences that were admitted with a look-up
  uint64_t hit_tokens = 0;
  uint64_t stored_blocks = 0;
  uint64_t evicted_blocks = 0;
  uint64_t unpublished_chains = 0;  // cut by a collision of hashes, or because no node was free
};
inline constexpr Counted<CacheTotals> kCacheCounts[] = {
    {&CacheTotals::queried_tokens, "quire_worker_prefix_cache_queries_total",
     "tokens looked up in the prefix cache"},
    {&CacheTotals::hit_tokens, "quire_worker_prefix_cache_hits_total",
     "of these, tokens found there"},
    {&CacheTotals::stored_blocks, "quire_worker_prefix_cache_stored_blocks_total",
     "blocks published"},
    {&CacheTotals::evicted_blocks, "quire_worker_prefix_cache_evicted_blocks_total",
     "blocks given up for others"},
    {&CacheTotals::unpublished_chains, "quire_worker_prefix_cache_unpublished_total",
     "chains of blocks cut off by a collision of hashes or a full index"}};

class KvCache {
 public:
  KvCache(const CacheShape& shape, std::function<void(int32_t)> on_page_freed);
  explicit KvCache(const KvCacheOptions& options);

  // --- blocks of a sequence

  // Pages that Extend would take.
  int64_t PagesToExtend(const SequenceBlocks& blocks, int64_t length) const;
  // Makes room for `length` tokens. False, and nothing has changed, when it takes more than `most`
  // pages, or more than are available.
  bool Extend(SequenceBlocks& blocks, int64_t length,
              int64_t most = std::numeric_limits<int64_t>::max());
  // Releases the blocks that no query at a position ≥ `computed` can see.
  void FreeBehindWindow(SequenceBlocks& blocks, int64_t computed);
  void Release(SequenceBlocks& blocks);

  // A separate table for the first `length` tokens of `from`, sharing their blocks: those that a
  // query at or after `length` sees. Requires: `from` still holds these, and with states it ends at
  // `length`. A last block that is only partly filled is shared too: all need TakeOwn before they
  // write, except that without states the sequence that ends in it may continue to write it.
  SequenceBlocks Fork(const SequenceBlocks& from, int64_t length);

  // Pages that TakeOwn would take.
  int64_t PagesToOwn(const SequenceBlocks& blocks, int64_t position) const;

  // Copy on write: the blocks at `position` that other tables name too are replaced by new ones.
  // Appends the copies to make to `copies`, which run before anything that their plan computes.
  // Returns the old references, to be released when that plan has been committed. Requires:
  // PagesToOwn pages are available.
  SequenceBlocks TakeOwn(SequenceBlocks& blocks, int64_t position,
                         std::vector<PlannedCopy>& copies);

  // Of the first `length` blocks of a sequence that is being computed, how many will be a hit: with
  // states, up to the last border whose state is kept.
  int64_t LastHit(const SequenceBlocks& blocks, int64_t length) const;
  // Pages that Release would free: those of blocks that no other sequence holds.
  int64_t PagesToReturn(const SequenceBlocks& blocks) const;
  // The most pages that a sequence of `length` tokens holds at one time when it is computed in
  // chunks of at most `chunk` tokens.
  int64_t PeakPages(int64_t length, int64_t chunk) const;

  // --- what sequences share by content

  // A sequence begins, or ends, to take part. A chain that is not open is left out of everything
  // below: nothing is found for it, nothing of it is published. A sequence whose tokens change
  // below its length must be closed first. Forks have their own chains.
  void Open(PrefixChain& chain, const CacheIdentity& identity);
  void Close(PrefixChain& chain);
  // The state of `tokens` as CachedPrefix describes it; takes no reference yet.
  CacheHit Lookup(PrefixChain& chain, std::span<const TokenId> tokens);
  // Takes what Lookup has just found for this chain: `blocks`, which held nothing, holds the hit.
  void Adopt(PrefixChain& chain, const CacheHit& hit, SequenceBlocks& blocks);
  // Counts a look-up of this many tokens whose sequence was admitted.
  void CountQuery(int64_t tokens, const CacheHit& hit);
  // The step that computed [0, computed) of `tokens` has been committed: makes its full blocks
  // available to others. Before FreeBehindWindow(computed).
  void Publish(PrefixChain& chain, const SequenceBlocks& blocks, std::span<const TokenId> tokens,
               int64_t computed);
  // Call before Publish of the same, for speed alone: hashes its full blocks and prefetches what
  // Publish reads, first the slots of their nodes, some sequences later the nodes.
  void PreparePublish(PrefixChain& chain, std::span<const TokenId> tokens, int64_t computed);
  void PrefetchPublish(const PrefixChain& chain, const SequenceBlocks& blocks) const;
  // The next length, above `computed`, at which Publish has something to do. Blocks that have
  // fallen behind a window since can wait until then: that is less than a block.
  int64_t NextDue(int64_t computed) const {
    return (computed / shape_.block_size + 1) * shape_.block_size;
  }
  // Its blocks are released, and it will be computed again, or taken from the cache.
  void Rewind(PrefixChain& chain);

  // Withdraws everything. Open chains continue from their current state.
  void Clear();
  // Reports the published blocks of the next `count` nodes from `from` on, and returns where to
  // continue; kNoNode at the end. `tell(kind, hash, parent hash)`.
  NodeId Scan(NodeId from, int32_t count,
              const std::function<void(int32_t, uint64_t, uint64_t)>& tell) const;
  CacheEventLog& events() { return events_; }
  // What is published according to the pool, in no order: for checks. `tell(kind, hash, block)`.
  void ForEachPublished(const std::function<void(int32_t, uint64_t, BlockId)>& tell) const;

  // Memory for the bookkeeping of one block that is cached in every kind, including its pages'
  // entries.
  static int64_t StateBytesPerBlock(const CacheShape& shape);

  const CacheShape& shape() const { return shape_; }
  const BlockPool& pool() const { return pool_; }
  int64_t available() const { return pool_.available(); }
  const CacheTotals& totals() const { return totals_; }
  bool prefix_caching() const { return index_ != nullptr; }

  // `tables`: all block tables there are.
  void CheckInvariants(std::span<const SequenceBlocks* const> tables) const;

 private:
  // Whether another table, or the prefix index, names the block.
  bool Shared(BlockId block) const { return pool_.references(block) > 1 || pool_.published(block); }
  int64_t BlockCount(int64_t length) const {
    return (length + shape_.block_size - 1) / shape_.block_size;
  }
  int64_t FirstSeen(int32_t kind, int64_t length) const;  // first block that is needed at `length`
  // Whether the state at the end of this block is kept for later sequences.
  bool IsKeptBorder(const CacheKindShape& kind, const SequenceBlocks& blocks, int64_t block) const;
  // Whether room for `length` tokens means a block of this kind here.
  bool TakesBlock(const CacheKindShape& kind, const SequenceBlocks& blocks, int64_t block,
                  int64_t length) const;
  int64_t StatelessEnd(int64_t blocks) const;
  BlockId Take(int32_t kind);
  bool EvictOldest();
  void PrefetchEvictionsAfter(BlockId block) const;
  void ExtendHashes(PrefixChain& chain, std::span<const TokenId> tokens, int64_t blocks);
  void WalkPath(const PrefixChain& chain, std::span<const TokenId> tokens, int64_t blocks);
  NodeId NodeFor(const PrefixChain& chain, std::span<const TokenId> tokens);
  void PublishKind(int32_t kind, int64_t first, const KindBlocks& table);
  void CheckPublished() const;

  CacheShape shape_;
  uint64_t hash_mask_;
  std::vector<CacheKind> kinds_;  // for CachedPrefix
  bool has_full_kind_ = false;
  bool has_states_ = false;
  BlockPool pool_;
  std::unique_ptr<PrefixIndex> index_;  // absent: prefix caching is off
  CacheEventLog events_;
  CacheTotals totals_;
  int64_t open_chains_ = 0;
  std::vector<NodeId> path_;  // of the last look-up, or of the current publication
};

}  // namespace quire
