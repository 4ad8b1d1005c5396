// The worker's pages, each in exactly one of three states: free, evictable, held.
//
// Owner: KvCache, on the engine's thread. A block is what one logical block of one cache kind
// needs: a page in each group of the kind, allocated and freed together. Its first page names it. A
// published block belongs to a node of the prefix index; without a reference it is evictable: it
// keeps its content until its pages are needed.
//
// Invariants:
// 1. free + evictable + held = total, after every call.
// 2. A held block has at least one reference; an evictable one has none and is published; a free
// page belongs to no block.
// 3. Evictable blocks are in one of two orders, oldest first: those behind a window, and others.
// 4. Running out of pages is a result, never an error.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "common/huge_pages.h"
#include "common/ids.h"
#include "common/prefetch.h"

namespace quire {

using BlockId = StrongId<struct BlockIdTag, int32_t>;  // the first page of the block
inline constexpr BlockId kNoBlock{-1};

// The two orders of eviction: no block of the second order is evicted while the first has any.
enum class EvictionOrder : uint8_t { kBehindWindow, kLeastRecent };

class BlockPool {
 public:
  static constexpr int64_t kBytesPerPage = 28;  // bookkeeping: an entry and a place in the list

  // `on_page_freed` is called with each page that becomes free; it may be empty.
  BlockPool(int64_t page_count, std::function<void(int32_t)> on_page_freed);

  // A held block of `pages` pages with one reference, or nothing when fewer pages are free.
  std::optional<BlockId> Allocate(int32_t pages);

  // One more reference to a held block, or the first one to an evictable block.
  void AddReference(BlockId block);
  // Drops one reference. With the last one a published block becomes evictable, newest in `order`;
  // the pages of an unpublished block become free.
  void Release(BlockId block, EvictionOrder order = EvictionOrder::kLeastRecent);

  // The held block is published as the block of `node` in `kind`.
  void Publish(BlockId block, int32_t node, int32_t kind);
  // The block is no longer published: the pages of an evictable one become free, a held one stays
  // held.
  void Withdraw(BlockId block);
  // An evictable block becomes the newest of its order; nothing happens to a held one.
  void Touch(BlockId block);
  // The block to be evicted next, or kNoBlock.
  BlockId Oldest() const;
  // The next newer block in the order of this evictable block, or kNoBlock.
  BlockId EvictedAfter(BlockId block) const { return BlockId(Entry(block).newer); }

  int64_t total() const { return static_cast<int64_t>(pages_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t evictable() const { return evictable_; }
  int64_t held() const { return held_; }
  // Pages that Allocate could get if all evictable blocks were withdrawn.
  int64_t available() const { return free() + evictable_; }

  int32_t references(BlockId block) const;
  bool published(BlockId block) const { return node(block) >= 0; }
  int32_t node(BlockId block) const { return Entry(block).node; }
  int32_t kind(BlockId block) const { return Entry(block).kind; }
  EvictionOrder order(BlockId block) const { return Entry(block).order; }

  // The page after `page` in its block, or −1. A walk from the block's id visits the groups in
  // order.
  int32_t NextPage(int32_t page) const;

  // Prefetches what AddReference and Release will touch.
  void Prefetch(BlockId block) const { PrefetchToRead(&pages_[block.value()]); }

  std::vector<BlockId> Published() const;  // reads every page: for checks
  void CheckInvariants() const;

 private:
  enum class State : uint8_t { kFree, kEvictable, kHeld, kFollower };
  // A block's state is in its first page; its other pages are followers.
  struct Page {
    int32_t next = -1;       // page of the block
    int32_t references = 0;  // of the block
    int32_t node = -1;       // of the prefix index, when published
    int32_t older = -1;      // neighbours in the eviction order
    int32_t newer = -1;
    uint16_t size = 0;  // pages of the block
    uint8_t kind = 0;   // when published
    State state : 4 = State::kFree;
    EvictionOrder order : 4 = EvictionOrder::kLeastRecent;
  };
  static_assert(sizeof(Page) == 24);
  struct Queue {
    int32_t oldest = -1;
    int32_t newest = -1;
  };

  const Page& Entry(BlockId block) const;
  Page& Entry(BlockId block) { return const_cast<Page&>(std::as_const(*this).Entry(block)); }
  void Append(int32_t page);
  void Unlink(int32_t page);
  void FreePages(BlockId block);

  std::vector<Page, HugePageAllocator<Page>> pages_;
  std::vector<int32_t>
      free_;  // a stack: the page freed last is taken first, since its memory is warm
  std::array<Queue, 2> queues_;
  int64_t evictable_ = 0;
  int64_t held_ = 0;
  std::function<void(int32_t)> on_page_freed_;
};

}  // namespace quire
