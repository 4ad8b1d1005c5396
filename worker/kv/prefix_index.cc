#include "worker/kv/prefix_index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "common/check.h"
#include "common/planted_bug.h"

namespace quire {

PrefixIndex::PrefixIndex(int64_t capacity, int32_t block_size, int32_t kinds)
    : block_size_(block_size), kinds_(kinds) {
  QUIRE_CHECK(capacity >= 0 && capacity <= std::numeric_limits<int32_t>::max() / 4);
  QUIRE_CHECK(block_size > 0 && kinds > 0);
  const size_t count = static_cast<size_t>(capacity);
  nodes_.resize(count);
  tokens_.resize(count * static_cast<size_t>(block_size));
  blocks_.resize(count * static_cast<size_t>(kinds), kNoBlock);
  slots_.resize(std::bit_ceil(4 * count + 2));
  slot_mask_ = slots_.size() - 1;
}

int64_t PrefixIndex::BytesPerNode(int32_t block_size, int32_t kinds) {
  // The slots are a power of two: eight for each node at most.
  return static_cast<int64_t>(sizeof(Node) + 8 * sizeof(Slot)) + kinds * int64_t{sizeof(BlockId)} +
         block_size * int64_t{sizeof(TokenId)};
}

NodeId PrefixIndex::TakeFree() {
  NodeId node = free_;
  if (node != kNoNode) {
    free_ = nodes_[node].parent;
  } else if (end_ < capacity()) {
    node = end_++;
  } else {
    return kNoNode;
  }
  QUIRE_CHECK(nodes_[node].uses == -1);
  nodes_[node].uses = 0;
  ++used_count_;
  return node;
}

NodeId PrefixIndex::PinRoot(const std::string& key, uint64_t hash) {
  const auto found = roots_.find(key);
  if (found != roots_.end()) {
    Pin(found->second);
    return found->second;
  }
  const NodeId root = TakeFree();
  if (root == kNoNode) return kNoNode;
  nodes_[root] = {.hash = hash, .parent = kNoNode, .uses = 1};
  roots_.emplace(key, root);
  root_keys_.emplace(root, key);
  return root;
}

size_t PrefixIndex::SlotOf(uint64_t hash) const {
  const uint32_t tag = static_cast<uint32_t>(hash);
  size_t at = Home(hash);
  // At most a quarter of the slots is taken: the walk ends.
  while (slots_[at].node != kNoNode &&
         (slots_[at].tag != tag || nodes_[slots_[at].node].hash != hash)) {
    at = (at + 1) & slot_mask_;
  }
  return at;
}

void PrefixIndex::PrefetchNode(uint64_t hash) const {
  const Slot& slot = slots_[Home(hash)];
  if (slot.node == kNoNode) return;
  PrefetchToRead(&nodes_[slot.node]);
  PrefetchToRead(&blocks_[BlockAt(slot.node, 0)]);
  PrefetchToRead(Tokens(slot.node));
}

bool PrefixIndex::Is(NodeId node, NodeId parent, std::span<const TokenId> tokens) const {
  QUIRE_CHECK(tokens.size() == static_cast<size_t>(block_size_));
  return nodes_[node].parent == parent &&
         (QUIRE_BUG(hit_not_verified) ||
          std::memcmp(Tokens(node), tokens.data(), tokens.size_bytes()) == 0);
}

NodeId PrefixIndex::Find(NodeId parent, uint64_t hash, std::span<const TokenId> tokens) const {
  const NodeId node = slots_[SlotOf(hash)].node;
  return node != kNoNode && Is(node, parent, tokens) ? node : kNoNode;
}

NodeId PrefixIndex::FindOrAdd(NodeId parent, uint64_t hash, std::span<const TokenId> tokens) {
  QUIRE_CHECK(parent != kNoNode && used(parent));
  const size_t at = SlotOf(hash);
  if (slots_[at].node != kNoNode) {
    return Is(slots_[at].node, parent, tokens) ? slots_[at].node : kNoNode;
  }
  const NodeId node = TakeFree();
  if (node == kNoNode) return kNoNode;
  nodes_[node] = {.hash = hash, .parent = parent, .uses = 0};
  std::memcpy(&tokens_[static_cast<size_t>(node) * static_cast<size_t>(block_size_)], tokens.data(),
              tokens.size_bytes());
  ++nodes_[parent].uses;
  slots_[at] = {node, static_cast<uint32_t>(hash)};
  return node;
}

void PrefixIndex::Unpin(NodeId node) {
  QUIRE_CHECK(nodes_[node].uses > 0);
  --nodes_[node].uses;
  Sweep(node);
}

void PrefixIndex::SetBlock(NodeId node, int32_t kind, BlockId block) {
  QUIRE_CHECK_MSG(!is_root(node) && block != kNoBlock, "a root holds no block");
  QUIRE_CHECK_MSG(blocks_[BlockAt(node, kind)] == kNoBlock, "two blocks of a kind have one hash");
  blocks_[BlockAt(node, kind)] = block;
}

void PrefixIndex::ClearBlock(NodeId node, int32_t kind) {
  QUIRE_CHECK(blocks_[BlockAt(node, kind)] != kNoBlock);
  blocks_[BlockAt(node, kind)] = kNoBlock;
}

void PrefixIndex::Sweep(NodeId node) {
  while (node != kNoNode && nodes_[node].uses == 0) {
    for (int32_t kind = 0; kind < kinds_; ++kind) {
      if (block(node, kind) != kNoBlock) return;
    }
    const NodeId parent = nodes_[node].parent;
    Free(node);
    if (parent != kNoNode) --nodes_[parent].uses;
    node = parent;
  }
}

void PrefixIndex::Free(NodeId node) {
  QUIRE_CHECK(nodes_[node].uses == 0);
  if (is_root(node)) {
    const auto key = root_keys_.find(node);
    QUIRE_CHECK(key != root_keys_.end());
    roots_.erase(key->second);
    root_keys_.erase(key);
  } else {
    const size_t at = SlotOf(nodes_[node].hash);
    QUIRE_CHECK(slots_[at].node == node);
    EraseSlot(at);
  }
  nodes_[node] = {.hash = 0, .parent = free_, .uses = -1};
  free_ = node;
  --used_count_;
}

// Knuth's Algorithm R: entries that were pushed past the hole move back into it.
void PrefixIndex::EraseSlot(size_t at) {
  for (size_t next = (at + 1) & slot_mask_; slots_[next].node != kNoNode;
       next = (next + 1) & slot_mask_) {
    const size_t home = slots_[next].tag & slot_mask_;
    // It may move to the hole unless its home is between the two.
    if (((next - home) & slot_mask_) < ((next - at) & slot_mask_)) continue;
    slots_[at] = slots_[next];
    at = next;
  }
  slots_[at] = Slot();
}

void PrefixIndex::CheckInvariants(int64_t pins) const {
  std::vector<int32_t> uses(nodes_.size(), 0);
  int64_t used_nodes = 0, slots = 0, uses_in_all = 0, children = 0;
  size_t roots = 0;
  for (NodeId node = 0; node < capacity(); ++node) {
    if (!used(node)) continue;
    QUIRE_CHECK(node < end_);
    ++used_nodes;
    uses_in_all += nodes_[node].uses;
    roots += is_root(node);
    if (is_root(node)) continue;
    ++children;
    QUIRE_CHECK_MSG(used(nodes_[node].parent), "a node's parent is gone");
    ++uses[nodes_[node].parent];
    QUIRE_CHECK_MSG(slots_[SlotOf(nodes_[node].hash)].node == node, "a node is not found");
    bool kept = nodes_[node].uses > 0;
    for (int32_t kind = 0; kind < kinds_; ++kind) kept = kept || block(node, kind) != kNoBlock;
    QUIRE_CHECK_MSG(kept, "a node stays that nothing holds");
  }
  for (const Slot& slot : slots_) slots += slot.node != kNoNode;
  for (NodeId node = 0; node < capacity(); ++node) {
    QUIRE_CHECK(!used(node) || uses[node] <= nodes_[node].uses);
  }
  QUIRE_CHECK(slots == children && used_nodes == used_count_);
  QUIRE_CHECK(roots == roots_.size() && roots == root_keys_.size());
  QUIRE_CHECK_MSG(uses_in_all == children + pins, "a pin of the prefix index has leaked");
}

}  // namespace quire
