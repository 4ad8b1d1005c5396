// The one rule that says how many tokens of a prompt the prefix cache serves; router and worker
// share it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace quire {

struct CacheKind {
  int window = 0;  // 0 is full attention
};

// The longest L, a multiple of block_size and at most prompt_tokens − 1, such that the full kind
// holds all blocks of [0, L) and each sliding kind those that overlap [L − window + 1, L). Without
// a full kind only the sliding condition counts. holds(kind, block) tells whether the block of that
// index is cached.
int64_t CachedPrefix(std::span<const CacheKind> kinds, int block_size, int64_t prompt_tokens,
                     const std::function<bool(int kind, int64_t block)>& holds);

}  // namespace quire
