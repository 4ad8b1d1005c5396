#include "worker/kv/block_pool.h"

#include <limits>
#include <utility>

#include "common/check.h"

namespace quire {
namespace {

// How many pages before its own a page's entry is prefetched.
constexpr int64_t kPagesAhead = 4;

}  // namespace

BlockPool::BlockPool(int64_t page_count, std::function<void(int32_t)> on_page_freed)
    : on_page_freed_(std::move(on_page_freed)) {
  QUIRE_CHECK(page_count >= 0 && page_count <= std::numeric_limits<int32_t>::max());
  pages_.resize(static_cast<size_t>(page_count));
  free_.reserve(pages_.size());
  for (int64_t page = page_count; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

const BlockPool::Page& BlockPool::Entry(BlockId block) const {
  QUIRE_CHECK(block.value() >= 0 && block.value() < total());
  return pages_[static_cast<size_t>(block.value())];
}

std::optional<BlockId> BlockPool::Allocate(int32_t pages) {
  QUIRE_CHECK(pages > 0 && pages <= std::numeric_limits<uint16_t>::max());
  if (free() < pages) return std::nullopt;
  if (free() > kPagesAhead) PrefetchToWrite(&pages_[free_[free_.size() - 1 - kPagesAhead]]);
  const int32_t first = free_.back();
  int32_t previous = -1;
  for (int32_t i = 0; i < pages; ++i) {
    const int32_t page = free_.back();
    free_.pop_back();
    QUIRE_CHECK_MSG(pages_[page].state == State::kFree, "a page of the free list is in use");
    pages_[page] = Page();
    pages_[page].state = i == 0 ? State::kHeld : State::kFollower;
    if (previous >= 0) pages_[previous].next = page;
    previous = page;
  }
  pages_[first].size = static_cast<uint16_t>(pages);
  pages_[first].references = 1;
  held_ += pages;
  return BlockId(first);
}

void BlockPool::AddReference(BlockId block) {
  Page& first = Entry(block);
  if (first.state == State::kEvictable) {
    QUIRE_CHECK(first.references == 0);
    Unlink(block.value());
    first.state = State::kHeld;
    evictable_ -= first.size;
    held_ += first.size;
  } else {
    QUIRE_CHECK(first.state == State::kHeld && first.references > 0);
  }
  ++first.references;
}

void BlockPool::Release(BlockId block, EvictionOrder order) {
  Page& first = Entry(block);
  QUIRE_CHECK_MSG(first.state == State::kHeld && first.references > 0,
                  "a block is given back twice");
  if (--first.references > 0) return;
  held_ -= first.size;
  if (first.node < 0) return FreePages(block);
  first.state = State::kEvictable;
  first.order = order;
  evictable_ += first.size;
  Append(block.value());
}

void BlockPool::Publish(BlockId block, int32_t node, int32_t kind) {
  Page& first = Entry(block);
  QUIRE_CHECK_MSG(first.state == State::kHeld, "a block is published that nobody has written");
  QUIRE_CHECK_MSG(first.node < 0, "a block is published twice");
  QUIRE_CHECK(node >= 0 && kind >= 0 && kind <= std::numeric_limits<uint8_t>::max());
  first.node = node;
  first.kind = static_cast<uint8_t>(kind);
}

void BlockPool::Withdraw(BlockId block) {
  Page& first = Entry(block);
  QUIRE_CHECK_MSG(first.node >= 0, "a block is withdrawn that is not published");
  first.node = -1;
  if (first.state == State::kHeld) return;
  QUIRE_CHECK(first.state == State::kEvictable);
  Unlink(block.value());
  evictable_ -= first.size;
  FreePages(block);
}

void BlockPool::Touch(BlockId block) {
  if (Entry(block).state != State::kEvictable) return;
  Unlink(block.value());
  Append(block.value());
}

BlockId BlockPool::Oldest() const {
  const int32_t behind = queues_[0].oldest;
  return BlockId(behind >= 0 ? behind : queues_[1].oldest);
}

void BlockPool::Append(int32_t page) {
  Queue& queue = queues_[static_cast<size_t>(pages_[page].order)];
  pages_[page].older = queue.newest;
  pages_[page].newer = -1;
  (queue.newest < 0 ? queue.oldest : pages_[queue.newest].newer) = page;
  queue.newest = page;
}

void BlockPool::Unlink(int32_t page) {
  Page& entry = pages_[page];
  Queue& queue = queues_[static_cast<size_t>(entry.order)];
  (entry.older < 0 ? queue.oldest : pages_[entry.older].newer) = entry.newer;
  (entry.newer < 0 ? queue.newest : pages_[entry.newer].older) = entry.older;
  entry.older = entry.newer = -1;
}

void BlockPool::FreePages(BlockId block) {
  for (int32_t page = block.value(); page >= 0;) {
    const int32_t next = pages_[page].next;
    pages_[page] = Page();
    free_.push_back(page);
    if (on_page_freed_) on_page_freed_(page);
    page = next;
  }
  QUIRE_CHECK(free() + evictable_ + held_ == total());
}

int32_t BlockPool::references(BlockId block) const {
  const Page& first = Entry(block);
  QUIRE_CHECK(first.state == State::kHeld || first.state == State::kEvictable);
  return first.references;
}

int32_t BlockPool::NextPage(int32_t page) const {
  QUIRE_CHECK(pages_[page].state != State::kFree);
  return pages_[page].next;
}

std::vector<BlockId> BlockPool::Published() const {
  std::vector<BlockId> blocks;
  for (int32_t page = 0; page < total(); ++page) {
    if (pages_[page].node >= 0) blocks.emplace_back(page);
  }
  return blocks;
}

void BlockPool::CheckInvariants() const {
  int64_t free_pages = 0, evictable_pages = 0, held_pages = 0, in_blocks = 0;
  for (int32_t page = 0; page < total(); ++page) {
    const Page& first = pages_[page];
    free_pages += first.state == State::kFree;
    if (first.state != State::kHeld && first.state != State::kEvictable) {
      QUIRE_CHECK(first.references == 0 && first.node < 0);
      continue;
    }
    const bool held = first.state == State::kHeld;
    QUIRE_CHECK(held == (first.references > 0));
    QUIRE_CHECK_MSG(held || first.node >= 0, "an evictable block is not published");
    (held ? held_pages : evictable_pages) += first.size;
    int32_t size = 1;
    for (int32_t next = first.next; next >= 0; next = pages_[next].next, ++size) {
      QUIRE_CHECK_MSG(pages_[next].state == State::kFollower, "a page stands in two blocks");
      QUIRE_CHECK_MSG(size < first.size, "a block's pages form a ring");
    }
    QUIRE_CHECK(size == first.size);
    in_blocks += size;
  }
  QUIRE_CHECK(free_pages == free() && evictable_pages == evictable_ && held_pages == held_);
  QUIRE_CHECK(free_pages + evictable_pages + held_pages == total());
  QUIRE_CHECK_MSG(in_blocks == held_pages + evictable_pages, "a page is held by no block");
  for (int32_t page : free_) QUIRE_CHECK(pages_[page].state == State::kFree);
  int64_t queued = 0;
  for (size_t order = 0; order < queues_.size(); ++order) {
    for (int32_t page = queues_[order].oldest; page >= 0; page = pages_[page].newer) {
      QUIRE_CHECK(pages_[page].state == State::kEvictable);
      QUIRE_CHECK(pages_[page].order == static_cast<EvictionOrder>(order));
      queued += pages_[page].size;
      QUIRE_CHECK_MSG(queued <= evictable_, "the eviction order is a ring");
    }
  }
  QUIRE_CHECK_MSG(queued == evictable_, "an evictable block stands in no order");
}

}  // namespace quire
