// The worker's pages, each in exactly one of three states: free, evictable, held.
//
// Owner: KvCache, on the engine's thread. A block is what one logical block of one cache kind
// needs: a page in each group of the kind, taken and given back together. It is named by its first
// page.
//
// Invariants:
// 1. free + evictable + held = total, after every call.
// 2. A held block has at least one reference; a free page belongs to no block.
// 3. Running out of pages is a result, never an error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/ids.h"

namespace quire {

using BlockId = StrongId<struct BlockIdTag, int32_t>;  // the first page of the block
inline constexpr BlockId kNoBlock{-1};

class BlockPool {
 public:
  // `on_page_freed` is told each page that becomes free; it may be empty.
  BlockPool(int64_t page_count, std::function<void(int32_t)> on_page_freed);

  // A held block of `pages` pages with one reference, or nothing when fewer pages are free.
  std::optional<BlockId> Allocate(int32_t pages);

  void AddReference(BlockId block);
  // Gives one reference back; the block's pages are free when it was the last.
  void Release(BlockId block);

  int64_t total() const { return static_cast<int64_t>(pages_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t evictable() const { return evictable_; }
  int64_t held() const { return held_; }
  int32_t references(BlockId block) const;

  // The page after `page` in its block, or −1. A walk from the block's id meets the groups in
  // order.
  int32_t NextPage(int32_t page) const;

  void CheckInvariants() const;

 private:
  enum class State : uint8_t { kFree, kEvictable, kHeld };
  struct Page {
    State state = State::kFree;
    bool first = false;      // of its block
    int32_t references = 0;  // of the block; on its first page only
    int32_t next = -1;       // in the block
  };

  std::vector<Page> pages_;
  std::vector<int32_t>
      free_;  // a stack: the page given back last is taken first, its memory is warm
  int64_t evictable_ = 0;
  int64_t held_ = 0;
  std::function<void(int32_t)> on_page_freed_;
};

}  // namespace quire
