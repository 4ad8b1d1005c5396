#include "worker/kv/kv_cache.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/check.h"

namespace quire {

KvCache::KvCache(const CacheShape& shape, std::function<void(int32_t)> on_page_freed)
    : shape_(shape), pool_(shape.page_count, std::move(on_page_freed)) {
  QUIRE_CHECK(shape_.block_size > 0);
  QUIRE_CHECK(!shape_.kinds.empty());
  for (const CacheKindShape& kind : shape_.kinds) {
    QUIRE_CHECK(kind.groups > 0 && kind.window >= 0);
  }
}

int64_t KvCache::PagesToExtend(const SequenceBlocks& blocks, int64_t length) const {
  QUIRE_CHECK(length >= 0);
  int64_t pages = 0;
  for (size_t kind = 0; kind < shape_.kinds.size(); ++kind) {
    const int64_t have =
        blocks.kinds.empty() ? 0 : static_cast<int64_t>(blocks.kinds[kind].blocks.size());
    pages += std::max<int64_t>(0, BlockCount(length) - have) * shape_.kinds[kind].groups;
  }
  return pages;
}

bool KvCache::Extend(SequenceBlocks& blocks, int64_t length) {
  QUIRE_CHECK(blocks.kinds.empty() || blocks.kinds.size() == shape_.kinds.size());
  const int64_t needed = PagesToExtend(blocks, length);
  if (needed > pool_.free()) return false;
  blocks.kinds.resize(shape_.kinds.size());
  const int64_t free_before = pool_.free();
  for (size_t kind = 0; kind < shape_.kinds.size(); ++kind) {
    std::vector<BlockId>& list = blocks.kinds[kind].blocks;
    while (static_cast<int64_t>(list.size()) < BlockCount(length)) {
      const std::optional<BlockId> block = pool_.Allocate(shape_.kinds[kind].groups);
      QUIRE_CHECK_MSG(block.has_value(), "the pages counted as free were not there");
      list.push_back(*block);
    }
  }
  QUIRE_CHECK(free_before - pool_.free() == needed);
  return true;
}

void KvCache::FreeBehindWindow(SequenceBlocks& blocks, int64_t computed) {
  if (blocks.kinds.empty()) return;
  QUIRE_CHECK(blocks.kinds.size() == shape_.kinds.size());
  for (size_t kind = 0; kind < shape_.kinds.size(); ++kind) {
    const int32_t window = shape_.kinds[kind].window;
    if (window == 0) continue;
    KindBlocks& table = blocks.kinds[kind];
    // The next query stands at `computed` and sees [computed − window + 1, computed].
    const int64_t first_seen = std::max<int64_t>(0, computed - window + 1);
    const int64_t first_live = first_seen / shape_.block_size;
    QUIRE_CHECK(table.first_live <= static_cast<int64_t>(table.blocks.size()));
    while (table.first_live < first_live &&
           table.first_live < static_cast<int64_t>(table.blocks.size())) {
      BlockId& block = table.blocks[table.first_live++];
      pool_.Release(block);
      block = kNoBlock;
    }
  }
}

SequenceBlocks KvCache::Fork(const SequenceBlocks& from, int64_t length) {
  QUIRE_CHECK(length > 0 && from.kinds.size() == shape_.kinds.size());
  SequenceBlocks fork;
  fork.kinds.resize(shape_.kinds.size());
  for (size_t kind = 0; kind < shape_.kinds.size(); ++kind) {
    const int32_t window = shape_.kinds[kind].window;
    const int64_t first_seen = window == 0 ? 0 : std::max<int64_t>(0, length - window + 1);
    const int64_t count = BlockCount(length);
    const KindBlocks& source = from.kinds[kind];
    KindBlocks& table = fork.kinds[kind];
    table.first_live = static_cast<int32_t>(std::min(first_seen / shape_.block_size, count));
    QUIRE_CHECK_MSG(static_cast<int64_t>(source.blocks.size()) >= count,
                    "a fork is longer than what it comes from");
    QUIRE_CHECK_MSG(source.first_live <= table.first_live || table.first_live == count,
                    "a fork needs blocks that have been given back");
    table.blocks.assign(static_cast<size_t>(count), kNoBlock);
    for (int64_t i = table.first_live; i < count; ++i) {
      table.blocks[i] = source.blocks[i];
      pool_.AddReference(table.blocks[i]);
    }
  }
  return fork;
}

int64_t KvCache::PagesToOwn(const SequenceBlocks& blocks, int64_t position) const {
  int64_t pages = 0;
  for (size_t kind = 0; kind < blocks.kinds.size(); ++kind) {
    const KindBlocks& table = blocks.kinds[kind];
    const int64_t at = position / shape_.block_size;
    if (at < table.first_live || at >= static_cast<int64_t>(table.blocks.size())) continue;
    if (Shared(table.blocks[at])) pages += shape_.kinds[kind].groups;
  }
  return pages;
}

SequenceBlocks KvCache::TakeOwn(SequenceBlocks& blocks, int64_t position,
                                std::vector<PlannedCopy>& copies) {
  QUIRE_CHECK(blocks.kinds.size() == shape_.kinds.size());
  const int64_t at = position / shape_.block_size;
  SequenceBlocks shared;
  for (size_t kind = 0; kind < blocks.kinds.size(); ++kind) {
    KindBlocks& table = blocks.kinds[kind];
    if (at < table.first_live || at >= static_cast<int64_t>(table.blocks.size())) continue;
    const BlockId old_block = table.blocks[at];
    if (!Shared(old_block)) continue;
    const std::optional<BlockId> own = pool_.Allocate(shape_.kinds[kind].groups);
    QUIRE_CHECK_MSG(own.has_value(), "the pages counted as free were not there");
    int32_t from = old_block.value();
    for (int32_t to = own->value(); to >= 0; to = pool_.NextPage(to), from = pool_.NextPage(from)) {
      QUIRE_CHECK(from >= 0);
      copies.push_back({from, to});
    }
    table.blocks[at] = *own;
    shared.kinds.resize(shape_.kinds.size());
    shared.kinds[kind].blocks.push_back(old_block);
  }
  return shared;
}

void KvCache::Release(SequenceBlocks& blocks) {
  for (KindBlocks& table : blocks.kinds) {
    // From the end: the first blocks of a sequence are the last to be reused.
    for (size_t i = table.blocks.size(); i-- > static_cast<size_t>(table.first_live);) {
      QUIRE_CHECK(table.blocks[i] != kNoBlock);
      pool_.Release(table.blocks[i]);
    }
  }
  blocks.kinds.clear();
}

int64_t KvCache::PagesToReturn(const SequenceBlocks& blocks) const {
  int64_t pages = 0;
  for (size_t kind = 0; kind < blocks.kinds.size(); ++kind) {
    const KindBlocks& table = blocks.kinds[kind];
    for (size_t i = static_cast<size_t>(table.first_live); i < table.blocks.size(); ++i) {
      if (pool_.references(table.blocks[i]) == 1) pages += shape_.kinds[kind].groups;
    }
  }
  return pages;
}

int64_t KvCache::PeakPages(int64_t length, int64_t chunk) const {
  QUIRE_CHECK(length >= 0 && chunk > 0);
  int64_t pages = 0;
  for (const CacheKindShape& kind : shape_.kinds) {
    int64_t blocks = BlockCount(length);
    if (kind.window > 0) {
      // Window and chunk may both begin in the middle of a block.
      blocks = std::min(blocks, BlockCount(int64_t{kind.window} - 1 + chunk) + 1);
    }
    pages += blocks * kind.groups;
  }
  return pages;
}

void KvCache::CheckInvariants(std::span<const SequenceBlocks* const> tables) const {
  pool_.CheckInvariants();
  std::map<BlockId, int32_t> references;
  int64_t pages = 0;
  for (const SequenceBlocks* table : tables) {
    QUIRE_CHECK(table->kinds.empty() || table->kinds.size() == shape_.kinds.size());
    for (size_t kind = 0; kind < table->kinds.size(); ++kind) {
      const KindBlocks& list = table->kinds[kind];
      QUIRE_CHECK(shape_.kinds[kind].window > 0 || list.first_live == 0);
      for (size_t i = 0; i < list.blocks.size(); ++i) {
        const bool live = i >= static_cast<size_t>(list.first_live);
        QUIRE_CHECK(live == (list.blocks[i] != kNoBlock));
        if (live && ++references[list.blocks[i]] == 1) pages += shape_.kinds[kind].groups;
      }
    }
  }
  for (const auto& [block, count] : references) {
    QUIRE_CHECK_MSG(pool_.references(block) == count, "a block's references are not its tables'");
  }
  QUIRE_CHECK_MSG(pages == pool_.held(), "pages are held that no sequence names");
}

}  // namespace quire
