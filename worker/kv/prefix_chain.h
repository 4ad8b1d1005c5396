// What the prefix cache knows of one sequence: its root, the hashes of its full blocks, and its
// position in the index.
//
// Owner: Sequence; only KvCache changes it. Invariants:
// 1. Hashes are computed once: neither decoding nor preemption hashes a block again.
// 2. An open chain pins exactly one node: the node of its last block that has one, or the root.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/block_hash.h"
#include "worker/kv/prefix_index.h"

namespace quire {

// Everything besides tokens that must be equal for blocks to be shared.
struct CacheIdentity {
  std::string key;  // compared as it is: adapter and salt
  BlockHash root;   // RootHash of the same, and of the model and the numerics
};

struct PrefixChain {
  NodeId root = kNoNode;  // kNoNode: closed; neither looked up nor published
  NodeId node = kNoNode;  // pinned
  int64_t blocks = 0;     // full blocks that have a node
  bool cut = false;       // a block collided or found no node: later blocks are not published
  BlockHash tail;         // of the last of `hashes`, or the root's
  std::vector<uint64_t> hashes;  // of the full blocks, as the index knows them
};

// The result of Lookup. Valid until the cache changes.
struct CacheHit {
  int64_t length = 0;     // tokens; a multiple of the block size
  int64_t pages = 0;      // that hold them
  int64_t evictable = 0;  // of these, held by no sequence now
  // Tokens whose keys and values are cached, without the state that would make them a hit; 0: there
  // are no more than `length`.
  int64_t branch = 0;
};

}  // namespace quire
