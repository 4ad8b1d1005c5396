// The part of KvCache that finds blocks by content: look-up, publication, and the data of
// snapshots.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/kv/kv_cache.h"

namespace quire {
namespace {

// A memory access takes as long as hashing a block: accesses for later blocks are under way
// meanwhile.
constexpr size_t kSlotsAhead = 16;
constexpr size_t kNodesAhead = 8;
// Evictions that a new node may cost when all nodes are in use.
constexpr int kMaxEvictionsForNode = 16;

}  // namespace

int64_t KvCache::StateBytesPerBlock(const CacheShape& shape) {
  return PrefixIndex::BytesPerNode(shape.block_size, static_cast<int32_t>(shape.kinds.size())) +
         shape.GroupCount() * BlockPool::kBytesPerPage;
}

void KvCache::Open(PrefixChain& chain, const CacheIdentity& identity) {
  QUIRE_CHECK_MSG(chain.root == kNoNode, "a chain is opened twice");
  chain = PrefixChain();
  if (index_ == nullptr) return;
  chain.root = index_->PinRoot(identity.key, identity.root.low & hash_mask_);
  if (chain.root == kNoNode) return;
  chain.node = chain.root;
  chain.tail = identity.root;
  ++open_chains_;
}

void KvCache::Close(PrefixChain& chain) {
  if (chain.root == kNoNode) return;
  QUIRE_CHECK(open_chains_ > 0);
  --open_chains_;
  index_->Unpin(chain.node);
  chain.root = chain.node = kNoNode;
}

void KvCache::Rewind(PrefixChain& chain) {
  if (chain.root == kNoNode) return;
  index_->Pin(chain.root);  // first: it stays while it is pinned
  index_->Unpin(chain.node);
  chain.node = chain.root;
  chain.blocks = 0;
  chain.cut = false;
}

void KvCache::ExtendHashes(PrefixChain& chain, std::span<const TokenId> tokens, int64_t blocks) {
  const size_t block_size = static_cast<size_t>(shape_.block_size);
  QUIRE_CHECK(static_cast<size_t>(blocks) * block_size <= tokens.size());
  while (chain.hashes.size() < static_cast<size_t>(blocks)) {
    const size_t first = chain.hashes.size() * block_size;
    chain.tail = HashBlock(chain.tail, tokens.subspan(first, block_size));
    chain.hashes.push_back(chain.tail.low & hash_mask_);
  }
}

// The nodes of the longest prefix of these blocks that the index knows.
void KvCache::WalkPath(const PrefixChain& chain, std::span<const TokenId> tokens, int64_t blocks) {
  const size_t block_size = static_cast<size_t>(shape_.block_size);
  const std::vector<uint64_t>& hashes = chain.hashes;
  const size_t count = static_cast<size_t>(blocks);
  path_.clear();
  for (size_t i = 0; i < std::min(count, kSlotsAhead); ++i) index_->PrefetchSlot(hashes[i]);
  NodeId parent = chain.root;
  for (size_t i = 0; i < count; ++i) {
    if (i + kSlotsAhead < count) index_->PrefetchSlot(hashes[i + kSlotsAhead]);
    if (i + kNodesAhead < count) index_->PrefetchNode(hashes[i + kNodesAhead]);
    parent = index_->Find(parent, hashes[i], tokens.subspan(i * block_size, block_size));
    if (parent == kNoNode) return;
    path_.push_back(parent);
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      const BlockId block = index_->block(parent, static_cast<int32_t>(kind));
      if (block != kNoBlock) pool_.Prefetch(block);
    }
  }
}

CacheHit KvCache::Lookup(PrefixChain& chain, std::span<const TokenId> tokens) {
  CacheHit hit;
  path_.clear();
  if (chain.root == kNoNode || tokens.size() < 2) return hit;
  const int64_t most = static_cast<int64_t>(tokens.size() - 1) / shape_.block_size;
  ExtendHashes(chain, tokens, most);
  WalkPath(chain, tokens, most);
  hit.length =
      CachedPrefix(kinds_, shape_.block_size, static_cast<int64_t>(tokens.size()),
                   [this](int kind, int64_t block) {
                     return block < static_cast<int64_t>(path_.size()) &&
                            index_->block(path_[static_cast<size_t>(block)], kind) != kNoBlock;
                   });
  const int64_t blocks = hit.length / shape_.block_size;
  for (int32_t kind = 0; kind < static_cast<int32_t>(kinds_.size()) && blocks > 0; ++kind) {
    const int32_t groups = shape_.kinds[static_cast<size_t>(kind)].groups;
    for (int64_t i = FirstSeen(kind, hit.length); i < blocks; ++i) {
      hit.pages += groups;
      const BlockId block = index_->block(path_[static_cast<size_t>(i)], kind);
      if (pool_.references(block) == 0) hit.evictable += groups;
    }
  }
  if (has_states_) hit.branch = StatelessEnd(blocks) * shape_.block_size;
  return hit;
}

// How many blocks of the path hold keys and values, where these are more than `blocks`; else 0.
int64_t KvCache::StatelessEnd(int64_t blocks) const {
  const auto whole = [this](NodeId node) {
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      if (shape_.kinds[kind].window > 0) continue;
      if (index_->block(node, static_cast<int32_t>(kind)) == kNoBlock) return false;
    }
    return true;
  };
  int64_t end = 0;
  while (end < static_cast<int64_t>(path_.size()) && whole(path_[static_cast<size_t>(end)])) ++end;
  return end > blocks ? end : 0;
}

void KvCache::Adopt(PrefixChain& chain, const CacheHit& hit, SequenceBlocks& blocks) {
  QUIRE_CHECK(blocks.kinds.empty() && hit.length % shape_.block_size == 0);
  if (hit.length == 0) return;
  const size_t count = static_cast<size_t>(hit.length / shape_.block_size);
  QUIRE_CHECK_MSG(chain.root != kNoNode && path_.size() >= count, "a hit is adopted too late");
  blocks.kinds.resize(kinds_.size());
  for (int32_t kind = 0; kind < static_cast<int32_t>(kinds_.size()); ++kind) {
    KindBlocks& table = blocks.kinds[static_cast<size_t>(kind)];
    table.first_live = static_cast<int32_t>(FirstSeen(kind, hit.length));
    table.blocks.assign(count, kNoBlock);
    for (size_t i = static_cast<size_t>(table.first_live); i < count; ++i) {
      const BlockId block = index_->block(path_[i], kind);
      QUIRE_CHECK(block != kNoBlock && pool_.node(block) == path_[i]);
      pool_.AddReference(block);
      table.blocks[i] = block;
    }
  }
  index_->Pin(path_[count - 1]);
  index_->Unpin(chain.node);
  chain.node = path_[count - 1];
  chain.blocks = static_cast<int64_t>(count);
}

void KvCache::CountQuery(int64_t tokens, const CacheHit& hit) {
  QUIRE_CHECK(hit.length < tokens);
  totals_.queried_tokens += static_cast<uint64_t>(tokens);
  totals_.hit_tokens += static_cast<uint64_t>(hit.length);
}

// The node of the chain's next block; kNoNode when there can be none.
NodeId KvCache::NodeFor(const PrefixChain& chain, std::span<const TokenId> tokens) {
  const size_t block_size = static_cast<size_t>(shape_.block_size);
  const size_t at = static_cast<size_t>(chain.blocks);
  const auto find = [&] {
    return index_->FindOrAdd(chain.node, chain.hashes[at],
                             tokens.subspan(at * block_size, block_size));
  };
  NodeId node = find();
  for (int tries = 0; node == kNoNode && tries < kMaxEvictionsForNode; ++tries) {
    if (index_->used_count() < index_->capacity()) return node;  // another block has this hash
    if (!EvictOldest()) return node;
    node = find();
  }
  return node;
}

void KvCache::Publish(PrefixChain& chain, const SequenceBlocks& blocks,
                      std::span<const TokenId> tokens, int64_t computed) {
  const int64_t full = computed / shape_.block_size;
  if (chain.root == kNoNode || chain.cut || chain.blocks >= full) return;
  QUIRE_CHECK(blocks.kinds.size() == kinds_.size());
  ExtendHashes(chain, tokens, full);
  const int64_t first = chain.blocks;
  for (int64_t i = first; i < full; ++i) {
    index_->PrefetchSlot(chain.hashes[static_cast<size_t>(i)]);
  }
  path_.clear();
  while (chain.blocks < full) {
    const NodeId node = NodeFor(chain, tokens);
    if (node == kNoNode) {
      chain.cut = true;
      ++totals_.unpublished_chains;
      break;
    }
    index_->Pin(node);
    index_->Unpin(chain.node);  // it stays: it has a child
    chain.node = node;
    ++chain.blocks;
    path_.push_back(node);
  }
  for (int32_t kind = 0; kind < static_cast<int32_t>(kinds_.size()); ++kind) {
    PublishKind(kind, first, blocks.kinds[static_cast<size_t>(kind)]);
  }
}

void KvCache::PreparePublish(PrefixChain& chain, std::span<const TokenId> tokens,
                             int64_t computed) {
  const int64_t full = computed / shape_.block_size;
  if (chain.root == kNoNode || chain.cut || chain.blocks >= full) return;
  ExtendHashes(chain, tokens, full);
  index_->PrefetchSlot(chain.hashes[static_cast<size_t>(chain.blocks)]);
  index_->PrefetchPin(chain.node);
}

void KvCache::PrefetchPublish(const PrefixChain& chain, const SequenceBlocks& blocks) const {
  const size_t next = static_cast<size_t>(chain.blocks);
  if (chain.root == kNoNode || chain.cut || next >= chain.hashes.size()) return;
  index_->PrefetchNode(chain.hashes[next]);
  for (const KindBlocks& kind : blocks.kinds) {
    if (next < kind.blocks.size() && kind.blocks[next] != kNoBlock) {
      pool_.Prefetch(kind.blocks[next]);
    }
    // What FreeBehindWindow releases next.
    const size_t first = static_cast<size_t>(kind.first_live);
    if (first > 0 && first < kind.blocks.size() && kind.blocks[first] != kNoBlock) {
      pool_.Prefetch(kind.blocks[first]);
    }
  }
}

// The blocks of the nodes in path_; the first node belongs to block `first`.
void KvCache::PublishKind(int32_t kind, int64_t first, const KindBlocks& table) {
  for (size_t i = 0; i < path_.size(); ++i) {
    const size_t at = static_cast<size_t>(first) + i;
    QUIRE_CHECK(at < table.blocks.size());
    const bool late = QUIRE_BUG(checkpoint_one_block_late) && at + 1 < table.blocks.size() &&
                      shape_.kinds[static_cast<size_t>(kind)].HoldsStates();
    const BlockId block = table.blocks[late ? at + 1 : at];
    const BlockId published = index_->block(path_[i], kind);
    if (published != kNoBlock) {
      pool_.Touch(published);  // its chain is in use, even if its own block is not
      continue;
    }
    if (block == kNoBlock) continue;
    pool_.Publish(block, path_[i], kind);
    index_->SetBlock(path_[i], kind, block);
    events_.Stored(static_cast<uint32_t>(kind), index_->parent_hash(path_[i]),
                   index_->hash(path_[i]));
    ++totals_.stored_blocks;
  }
}

void KvCache::Clear() {
  if (index_ == nullptr) return;
  for (int32_t kind = 0; kind < static_cast<int32_t>(kinds_.size()); ++kind) {
    for (NodeId node = 0; node < index_->end(); ++node) {
      if (!index_->used(node) || index_->block(node, kind) == kNoBlock) continue;
      const BlockId block = index_->block(node, kind);
      index_->ClearBlock(node, kind);
      pool_.Withdraw(block);
      index_->Sweep(node);
    }
    events_.Cleared(static_cast<uint32_t>(kind));
  }
}

NodeId KvCache::Scan(NodeId from, int32_t count,
                     const std::function<void(int32_t, uint64_t, uint64_t)>& tell) const {
  if (index_ == nullptr) return kNoNode;
  QUIRE_CHECK(from >= 0 && count > 0);
  const NodeId end = std::min<int64_t>(index_->end(), int64_t{from} + count);
  for (NodeId node = from; node < end; ++node) {
    if (!index_->used(node) || index_->is_root(node)) continue;
    for (int32_t kind = 0; kind < static_cast<int32_t>(kinds_.size()); ++kind) {
      if (index_->block(node, kind) == kNoBlock) continue;
      tell(kind, index_->hash(node), index_->parent_hash(node));
    }
  }
  return end < index_->end() ? end : kNoNode;
}

void KvCache::ForEachPublished(const std::function<void(int32_t, uint64_t, BlockId)>& tell) const {
  for (const BlockId block : pool_.Published()) {
    tell(pool_.kind(block), index_->hash(pool_.node(block)), block);
  }
}

void KvCache::CheckPublished() const {
  if (index_ == nullptr) {
    QUIRE_CHECK(pool_.evictable() == 0 && open_chains_ == 0);
    return;
  }
  index_->CheckInvariants(open_chains_);
  int64_t published = 0;
  for (NodeId node = 0; node < index_->end(); ++node) {
    if (!index_->used(node)) continue;
    for (int32_t kind = 0; kind < static_cast<int32_t>(kinds_.size()); ++kind) {
      const BlockId block = index_->block(node, kind);
      if (block == kNoBlock) continue;
      ++published;
      QUIRE_CHECK_MSG(pool_.node(block) == node && pool_.kind(block) == kind,
                      "index and pool differ about a published block");
    }
  }
  QUIRE_CHECK_MSG(published == static_cast<int64_t>(pool_.Published().size()),
                  "a published block is not in the index");
}

}  // namespace quire
