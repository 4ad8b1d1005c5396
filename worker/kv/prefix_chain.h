// What the prefix cache knows of one sequence: its root, the hashes of its full blocks, and how far
// it has come in the index.
//
// Owner: Sequence; changed by KvCache alone. Invariants:
// 1. Hashes are computed once: neither decoding nor preemption hashes a block again.
// 2. An open chain pins exactly one node: that of its last block with a node, or the root.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/block_hash.h"
#include "worker/kv/prefix_index.h"

namespace quire {

// All that must be equal, besides tokens, for blocks to be shared.
struct CacheIdentity {
  std::string key;  // compared as it is: adapter and salt
  BlockHash root;   // RootHash of the same, and of the model and the numerics
};

struct PrefixChain {
  NodeId root = kNoNode;  // kNoNode: closed; neither looked up nor published
  NodeId node = kNoNode;  // pinned
  int64_t blocks = 0;     // full blocks that have a node
  bool cut = false;       // a block collided or found no node: those behind it are not published
  BlockHash tail;         // of the last of `hashes`, or the root's
  std::vector<uint64_t> hashes;  // of the full blocks, as the index knows them
};

// What Lookup found. Valid until the cache changes.
struct CacheHit {
  int64_t length = 0;     // tokens; a multiple of the block size
  int64_t pages = 0;      // that hold them
  int64_t evictable = 0;  // of these, held by nobody now
};

}  // namespace quire
