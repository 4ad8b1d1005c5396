#include "worker/kv/block_pool.h"

#include <limits>
#include <utility>

#include "common/check.h"

namespace quire {

BlockPool::BlockPool(int64_t page_count, std::function<void(int32_t)> on_page_freed)
    : on_page_freed_(std::move(on_page_freed)) {
  QUIRE_CHECK(page_count >= 0 && page_count <= std::numeric_limits<int32_t>::max());
  pages_.resize(static_cast<size_t>(page_count));
  free_.reserve(pages_.size());
  for (int64_t page = page_count; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

std::optional<BlockId> BlockPool::Allocate(int32_t pages) {
  QUIRE_CHECK(pages > 0);
  if (free() < pages) return std::nullopt;
  const int32_t first = free_.back();
  int32_t previous = -1;
  for (int32_t i = 0; i < pages; ++i) {
    const int32_t page = free_.back();
    free_.pop_back();
    Page& entry = pages_[page];
    QUIRE_CHECK_MSG(entry.state == State::kFree, "a page of the free list is in use");
    entry = Page{.state = State::kHeld, .first = i == 0, .references = i == 0 ? 1 : 0};
    if (previous >= 0) pages_[previous].next = page;
    previous = page;
  }
  held_ += pages;
  return BlockId(first);
}

void BlockPool::AddReference(BlockId block) {
  Page& first = pages_[block.value()];
  QUIRE_CHECK(first.first && first.state == State::kHeld);
  QUIRE_CHECK(first.references > 0);
  ++first.references;
}

void BlockPool::Release(BlockId block) {
  QUIRE_CHECK(block.value() >= 0 && block.value() < total());
  Page& first = pages_[block.value()];
  QUIRE_CHECK_MSG(first.first && first.references > 0, "a block is given back twice");
  if (--first.references > 0) return;
  for (int32_t page = block.value(); page >= 0;) {
    Page& entry = pages_[page];
    QUIRE_CHECK(entry.state == State::kHeld);
    const int32_t next = entry.next;
    entry = Page{};
    free_.push_back(page);
    --held_;
    if (on_page_freed_) on_page_freed_(page);
    page = next;
  }
  QUIRE_CHECK(free() + evictable_ + held_ == total());
}

int32_t BlockPool::references(BlockId block) const {
  QUIRE_CHECK(pages_[block.value()].first);
  return pages_[block.value()].references;
}

int32_t BlockPool::NextPage(int32_t page) const {
  QUIRE_CHECK(pages_[page].state != State::kFree);
  return pages_[page].next;
}

void BlockPool::CheckInvariants() const {
  int64_t free_pages = 0, evictable_pages = 0, held_pages = 0, in_blocks = 0;
  for (const Page& page : pages_) {
    free_pages += page.state == State::kFree;
    evictable_pages += page.state == State::kEvictable;
    held_pages += page.state == State::kHeld;
    QUIRE_CHECK(page.state != State::kFree || (!page.first && page.next < 0));
    QUIRE_CHECK(page.first == (page.references > 0) || page.state == State::kEvictable);
    if (!page.first) continue;
    for (int32_t next = static_cast<int32_t>(&page - pages_.data()); next >= 0;
         next = pages_[next].next) {
      QUIRE_CHECK_MSG(pages_[next].state == page.state, "a block's pages differ in state");
      QUIRE_CHECK_MSG(++in_blocks <= total(), "a block's pages form a ring");
    }
  }
  QUIRE_CHECK(free_pages == free() && evictable_pages == evictable_ && held_pages == held_);
  QUIRE_CHECK(free_pages + evictable_pages + held_pages == total());
  QUIRE_CHECK_MSG(in_blocks == held_pages + evictable_pages, "a page is held by no block");
  for (int32_t page : free_) QUIRE_CHECK(pages_[page].state == State::kFree);
}

}  // namespace quire
