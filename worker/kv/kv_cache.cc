#include "worker/kv/kv_cache.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"

namespace quire {
namespace {

// A node has a block in some kind, or is between such nodes: without a full kind those behind the
// window of a long sequence are. When none is left old ones are evicted.
constexpr int64_t kNodesPerSlidingBlock = 4;
constexpr int64_t kSpareNodes = 256;  // roots
// An eviction skips this many blocks whose chain continues before it takes one of them.
constexpr int kMaxPassedOver = 64;

}  // namespace

KvCache::KvCache(const CacheShape& shape, std::function<void(int32_t)> on_page_freed)
    : KvCache(KvCacheOptions{.shape = shape, .on_page_freed = std::move(on_page_freed)}) {}

KvCache::KvCache(const KvCacheOptions& options)
    : shape_(options.shape),
      hash_mask_(options.hash_mask),
      pool_(options.shape.page_count, options.on_page_freed) {
  QUIRE_CHECK(shape_.block_size > 0);
  QUIRE_CHECK(!shape_.kinds.empty());
  int64_t blocks = 0;
  for (const CacheKindShape& kind : shape_.kinds) {
    QUIRE_CHECK(kind.groups > 0 && kind.window >= 0 && kind.state_interval >= 0);
    // What a sequence sees is its running state and the one at the last border before.
    QUIRE_CHECK(!kind.HoldsStates() || kind.window == shape_.block_size + 1);
    has_states_ = has_states_ || kind.HoldsStates();
    kinds_.push_back({kind.window});
    has_full_kind_ = has_full_kind_ || kind.window == 0;
    blocks += shape_.page_count / kind.groups;
  }
  if (!options.prefix_caching) return;
  const int64_t nodes = blocks * (has_full_kind_ ? 1 : kNodesPerSlidingBlock) + kSpareNodes;
  index_ = std::make_unique<PrefixIndex>(nodes, shape_.block_size,
                                         static_cast<int32_t>(shape_.kinds.size()));
}

int64_t KvCache::PagesToExtend(const SequenceBlocks& blocks, int64_t length) const {
  QUIRE_CHECK(length >= 0);
  const int64_t count = BlockCount(length);
  int64_t pages = 0;
  for (size_t kind = 0; kind < shape_.kinds.size(); ++kind) {
    const int64_t have =
        blocks.kinds.empty() ? 0 : static_cast<int64_t>(blocks.kinds[kind].blocks.size());
    int64_t taken = std::max<int64_t>(0, count - have);
    if (shape_.kinds[kind].HoldsStates()) {
      taken = 0;
      for (int64_t block = have; block < count; ++block) {
        if (TakesBlock(shape_.kinds[kind], blocks, block, length)) ++taken;
      }
    }
    pages += taken * shape_.kinds[kind].groups;
  }
  return pages;
}

bool KvCache::IsKeptBorder(const CacheKindShape& kind, const SequenceBlocks& blocks,
                           int64_t block) const {
  const int64_t end = (block + 1) * shape_.block_size;
  return (block + 1) % kind.state_interval == 0 || end == blocks.branch ||
         end == blocks.prompt_border;
}

// The last block has the running state; the last full one is where a following sequence will most
// likely continue.
bool KvCache::TakesBlock(const CacheKindShape& kind, const SequenceBlocks& blocks, int64_t block,
                         int64_t length) const {
  return !kind.HoldsStates() || block + 1 == BlockCount(length) ||
         block + 1 == length / shape_.block_size || IsKeptBorder(kind, blocks, block);
}

bool KvCache::Extend(SequenceBlocks& blocks, int64_t length, int64_t most) {
  QUIRE_CHECK(blocks.kinds.empty() || blocks.kinds.size() == shape_.kinds.size());
  const int64_t needed = PagesToExtend(blocks, length);
  if (needed > std::min(most, available())) return false;
  if (blocks.kinds.empty()) blocks.kinds.resize(shape_.kinds.size());
  const int64_t held_before = pool_.held();
  const size_t count = static_cast<size_t>(BlockCount(length));
  for (size_t kind = 0; kind < shape_.kinds.size(); ++kind) {
    std::vector<BlockId>& list = blocks.kinds[kind].blocks;
    while (list.size() < count) {
      const auto block = static_cast<int64_t>(list.size());
      const bool taken = TakesBlock(shape_.kinds[kind], blocks, block, length);
      list.push_back(taken ? Take(static_cast<int32_t>(kind)) : kNoBlock);
    }
  }
  QUIRE_CHECK(pool_.held() - held_before == needed);
  return true;
}

// A block from pages that were counted as available.
BlockId KvCache::Take(int32_t kind) {
  const int32_t groups = shape_.kinds[static_cast<size_t>(kind)].groups;
  while (pool_.free() < groups) {
    const bool evicted = EvictOldest();
    QUIRE_CHECK_MSG(evicted, "the pages counted as available were not there");
  }
  const std::optional<BlockId> block = pool_.Allocate(groups);
  QUIRE_CHECK(block.has_value());
  return *block;
}

bool KvCache::EvictOldest() {
  BlockId block = pool_.Oldest();
  if (block == kNoBlock) return false;
  // Reverse order of release puts ends of chains first, except where a sequence continues a chain
  // on its own copy: then the blocks that it continues are in use, too.
  for (int passed = 0; passed < kMaxPassedOver && has_full_kind_; ++passed) {
    if (pool_.order(block) == EvictionOrder::kBehindWindow || !index_->inner(pool_.node(block))) {
      break;
    }
    pool_.Touch(block);
    block = pool_.Oldest();
  }
  PrefetchEvictionsAfter(block);
  const NodeId node = pool_.node(block);
  const int32_t kind = pool_.kind(block);
  index_->ClearBlock(node, kind);
  if (!QUIRE_BUG(eviction_not_told)) {
    events_.Removed(static_cast<uint32_t>(kind), index_->hash(node));
  }
  pool_.Withdraw(block);
  index_->Sweep(node);
  ++totals_.evicted_blocks;
  return true;
}

// An eviction reads a page, the node that the page names, and the slot of that node's hash: three
// accesses to memory that wait for each other. Each call here moves the next three evictions one
// access further.
void KvCache::PrefetchEvictionsAfter(BlockId block) const {
  const BlockId first = pool_.EvictedAfter(block);
  if (first == kNoBlock) return;
  index_->PrefetchSlotOfNode(pool_.node(first));
  const BlockId second = pool_.EvictedAfter(first);
  if (second == kNoBlock) return;
  index_->PrefetchHolder(pool_.node(second));
  const BlockId third = pool_.EvictedAfter(second);
  if (third != kNoBlock) pool_.Prefetch(third);
}

int64_t KvCache::FirstSeen(int32_t kind, int64_t length) const {
  const int32_t window = shape_.kinds[static_cast<size_t>(kind)].window;
  // The query at `length` sees [length − window + 1, length].
  return window == 0 ? 0 : std::max<int64_t>(0, length - window + 1) / shape_.block_size;
}

void KvCache::FreeBehindWindow(SequenceBlocks& blocks, int64_t computed) {
  if (blocks.kinds.empty()) return;
  QUIRE_CHECK(blocks.kinds.size() == shape_.kinds.size());
  for (size_t kind = 0; kind < shape_.kinds.size(); ++kind) {
    int64_t first_live = FirstSeen(static_cast<int32_t>(kind), computed);
    if (QUIRE_BUG(first_live_off_by_one) && first_live > 0) ++first_live;
    KindBlocks& table = blocks.kinds[kind];
    QUIRE_CHECK(table.first_live <= static_cast<int64_t>(table.blocks.size()));
    while (table.first_live < first_live &&
           table.first_live < static_cast<int64_t>(table.blocks.size())) {
      const int32_t at = table.first_live++;
      BlockId& block = table.blocks[at];
      if (block == kNoBlock) continue;  // of states
      const CacheKindShape& shape = shape_.kinds[kind];
      const bool kept = shape.HoldsStates() && IsKeptBorder(shape, blocks, at);
      if (!QUIRE_BUG(release_forgotten_behind_window)) {
        pool_.Release(block, kept ? EvictionOrder::kLeastRecent : EvictionOrder::kBehindWindow);
      }
      block = kNoBlock;
    }
  }
}

SequenceBlocks KvCache::Fork(const SequenceBlocks& from, int64_t length) {
  QUIRE_CHECK(length > 0 && from.kinds.size() == shape_.kinds.size());
  SequenceBlocks fork;
  fork.branch = from.branch;
  fork.prompt_border = from.prompt_border;
  fork.kinds.resize(shape_.kinds.size());
  for (size_t kind = 0; kind < shape_.kinds.size(); ++kind) {
    const int64_t count = BlockCount(length);
    const KindBlocks& source = from.kinds[kind];
    KindBlocks& table = fork.kinds[kind];
    table.first_live =
        static_cast<int32_t>(std::min(FirstSeen(static_cast<int32_t>(kind), length), count));
    QUIRE_CHECK_MSG(static_cast<int64_t>(source.blocks.size()) >= count,
                    "a fork is longer than what it comes from");
    QUIRE_CHECK_MSG(source.first_live <= table.first_live || table.first_live == count,
                    "a fork needs blocks that have been given back");
    table.blocks.assign(static_cast<size_t>(count), kNoBlock);
    for (int64_t i = table.first_live; i < count; ++i) {
      table.blocks[i] = source.blocks[i];
      if (table.blocks[i] != kNoBlock) pool_.AddReference(table.blocks[i]);
    }
    QUIRE_CHECK_MSG(table.blocks.back() != kNoBlock, "a fork has no state to continue from");
  }
  return fork;
}

int64_t KvCache::PagesToOwn(const SequenceBlocks& blocks, int64_t position) const {
  int64_t pages = 0;
  for (size_t kind = 0; kind < blocks.kinds.size(); ++kind) {
    const KindBlocks& table = blocks.kinds[kind];
    const int64_t at = position / shape_.block_size;
    if (at < table.first_live || at >= static_cast<int64_t>(table.blocks.size())) continue;
    QUIRE_CHECK(table.blocks[at] != kNoBlock);
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
    const BlockId own = Take(static_cast<int32_t>(kind));
    int32_t from = old_block.value();
    for (int32_t to = own.value(); to >= 0; to = pool_.NextPage(to), from = pool_.NextPage(from)) {
      QUIRE_CHECK(from >= 0);
      copies.push_back({from, to});
    }
    table.blocks[at] = own;
    shared.kinds.resize(shape_.kinds.size());
    shared.kinds[kind].blocks.push_back(old_block);
  }
  return shared;
}

void KvCache::Release(SequenceBlocks& blocks) {
  // From the end: blocks that others are likely to share are evicted last.
  size_t end = 0;
  for (const KindBlocks& table : blocks.kinds) end = std::max(end, table.blocks.size());
  for (size_t i = end; i-- > 0;) {
    // The full kind last: without its block those of the others are worthless.
    for (size_t kind = blocks.kinds.size(); kind-- > 0;) {
      const KindBlocks& table = blocks.kinds[kind];
      if (i >= table.blocks.size() || i < static_cast<size_t>(table.first_live)) continue;
      if (table.blocks[i] == kNoBlock) continue;  // of states
      pool_.Release(table.blocks[i]);
      if (QUIRE_BUG(double_free) && i == 0) pool_.Release(table.blocks[i]);
    }
  }
  blocks.kinds.clear();
}

int64_t KvCache::LastHit(const SequenceBlocks& blocks, int64_t length) const {
  int64_t hit = length;
  for (const CacheKindShape& kind : shape_.kinds) {
    if (!kind.HoldsStates()) continue;
    while (hit > 0 && !IsKeptBorder(kind, blocks, hit - 1)) --hit;
  }
  return hit;
}

int64_t KvCache::PagesToReturn(const SequenceBlocks& blocks) const {
  int64_t pages = 0;
  for (size_t kind = 0; kind < blocks.kinds.size(); ++kind) {
    const KindBlocks& table = blocks.kinds[kind];
    for (size_t i = static_cast<size_t>(table.first_live); i < table.blocks.size(); ++i) {
      if (table.blocks[i] == kNoBlock) continue;  // of states
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
    if (kind.HoldsStates()) {
      // Two before the chunk; those at the interval, two that a prompt keeps, and the last two.
      const int64_t most = BlockCount(chunk) + 1;
      blocks = std::min(blocks, 2 + std::min(most, most / kind.state_interval + 5));
    } else if (kind.window > 0) {
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
      const bool states = shape_.kinds[kind].HoldsStates();
      for (size_t i = 0; i < list.blocks.size(); ++i) {
        const bool live = i >= static_cast<size_t>(list.first_live);
        const bool there = list.blocks[i] != kNoBlock;
        QUIRE_CHECK(there ? live : !live || (states && i + 1 < list.blocks.size()));
        if (there && ++references[list.blocks[i]] == 1) pages += shape_.kinds[kind].groups;
      }
    }
  }
  for (const auto& [block, count] : references) {
    QUIRE_CHECK_MSG(pool_.references(block) == count, "a block's references are not its tables'");
  }
  QUIRE_CHECK_MSG(pages == pool_.held(), "pages are held that no sequence names");
  CheckPublished();
}

}  // namespace quire
