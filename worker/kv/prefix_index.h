// What is cached, as a tree of token blocks below roots, found by hash and verified by content.
//
// Owner: KvCache, on the engine's thread. A node is one block of tokens that follows one parent; in
// each cache kind it names the published block that holds its keys and values, or none. A root
// represents everything besides tokens that must be equal (adapter, salt), compared by its full
// key. Memory is allocated once: kBytesPerNode(block size, kinds) for each node, used or not.
//
// Invariants:
// 1. A node is reached only from its parent with its own tokens: an equal hash alone finds nothing.
// 2. Of all nodes at most one has a given hash (its low 64 bits, which is what travels on the
// wire);
//    a block that collides with another is not cached.
// 3. A node stays while it has a child, a pin, or a block in some kind.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/block_hash.h"
#include "common/huge_pages.h"
#include "common/ids.h"
#include "common/prefetch.h"
#include "worker/kv/block_pool.h"

namespace quire {

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

class PrefixIndex {
 public:
  PrefixIndex(int64_t capacity, int32_t block_size, int32_t kinds);

  // The pinned root of this key, with `hash` as the parent hash of its first blocks; kNoNode when
  // no node is free.
  NodeId PinRoot(const std::string& key, uint64_t hash);

  // The child of `parent` that holds exactly these tokens, or kNoNode.
  NodeId Find(NodeId parent, uint64_t hash, std::span<const TokenId> tokens) const;
  // The same, created if it is absent. kNoNode when another node has this hash or none is free.
  NodeId FindOrAdd(NodeId parent, uint64_t hash, std::span<const TokenId> tokens);
  // Prefetches what Find reads: first the slot, some hashes later the node.
  void PrefetchSlot(uint64_t hash) const { PrefetchToRead(&slots_[Home(hash)]); }
  void PrefetchNode(uint64_t hash) const;
  // Prefetches what eviction of a node's block reads: first the node, later the slot of its hash.
  void PrefetchHolder(NodeId node) const {
    PrefetchToWrite(&nodes_[node]);
    PrefetchToWrite(&blocks_[BlockAt(node, 0)]);
  }
  void PrefetchSlotOfNode(NodeId node) const { PrefetchToWrite(&slots_[Home(nodes_[node].hash)]); }
  void PrefetchPin(NodeId node) const { PrefetchToWrite(&nodes_[node]); }

  void Pin(NodeId node) { ++nodes_[node].uses; }
  void Unpin(NodeId node);

  BlockId block(NodeId node, int32_t kind) const { return blocks_[BlockAt(node, kind)]; }
  void SetBlock(NodeId node, int32_t kind, BlockId block);
  // Call Sweep(node) afterwards.
  void ClearBlock(NodeId node, int32_t kind);
  // Frees the node, and its ancestors in turn, if nothing holds it any more.
  void Sweep(NodeId node);

  uint64_t hash(NodeId node) const { return nodes_[node].hash; }
  uint64_t parent_hash(NodeId node) const { return nodes_[nodes_[node].parent].hash; }
  bool used(NodeId node) const { return nodes_[node].uses >= 0; }
  bool is_root(NodeId node) const { return nodes_[node].parent == kNoNode; }
  // Whether it has a child or a pin.
  bool inner(NodeId node) const { return nodes_[node].uses > 0; }

  int64_t capacity() const { return static_cast<int64_t>(nodes_.size()); }
  int64_t used_count() const { return used_count_; }
  // No node from here on has ever been used.
  NodeId end() const { return end_; }

  // Memory of one node, including its slots in the table.
  static int64_t BytesPerNode(int32_t block_size, int32_t kinds);

  // `pins`: the total number of pins.
  void CheckInvariants(int64_t pins) const;

 private:
  struct Node {
    uint64_t hash = 0;
    NodeId parent = kNoNode;  // of a free node: the next free one
    int32_t uses = -1;        // children and pins; −1: free
  };
  struct Slot {
    NodeId node = kNoNode;
    uint32_t tag = 0;  // low bits of the hash
  };

  size_t Home(uint64_t hash) const { return static_cast<size_t>(hash) & slot_mask_; }
  size_t BlockAt(NodeId node, int32_t kind) const {
    return static_cast<size_t>(node) * static_cast<size_t>(kinds_) + static_cast<size_t>(kind);
  }
  const TokenId* Tokens(NodeId node) const {
    return tokens_.data() + static_cast<size_t>(node) * static_cast<size_t>(block_size_);
  }
  // The slot of the node with this hash, or the empty one where it belongs.
  size_t SlotOf(uint64_t hash) const;
  bool Is(NodeId node, NodeId parent, std::span<const TokenId> tokens) const;
  NodeId TakeFree();
  void Free(NodeId node);
  void EraseSlot(size_t at);

  const int32_t block_size_;
  const int32_t kinds_;
  template <class T>
  using Array = std::vector<T, HugePageAllocator<T>>;
  Array<Node> nodes_;
  Array<TokenId> tokens_;  // [node, block_size]
  Array<BlockId> blocks_;  // [node, kind]
  Array<Slot> slots_;      // open addressing, linear probing, at most a quarter full
  size_t slot_mask_ = 0;
  NodeId free_ = kNoNode;
  NodeId end_ = 0;
  int64_t used_count_ = 0;
  std::unordered_map<std::string, NodeId> roots_;
  std::unordered_map<NodeId, std::string> root_keys_;
};

}  // namespace quire
