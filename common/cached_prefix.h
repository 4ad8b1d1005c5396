// The one rule for how many tokens of a prompt the prefix cache serves; router and worker share it.
// Pure functions, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

namespace quire {

struct CacheKind {
  int window = 0;  // 0 is full attention
};

// The longest L, a multiple of block_size and at most prompt_tokens − 1, such that the full kind
// holds all blocks of [0, L) and each sliding kind those that overlap [L − window + 1, L). Without
// a full kind only the sliding condition counts. holds(kind, block) returns whether the block of
// that index is cached.
int64_t CachedPrefix(std::span<const CacheKind> kinds, int block_size, int64_t prompt_tokens,
                     const std::function<bool(int kind, int64_t block)>& holds);

// The same rule for up to 64 caches at once, for a caller that knows which caches hold each block:
// bit i of a row means that cache i holds the block. Block by block it computes for all caches what
// CachedPrefix computes for one.
inline constexpr int kCachesAtOnce = 64;
// Fills in the rows of the blocks [first, first + rows.size()) of a kind; never called for blocks
// past the prompt's last full one. Called for a full kind in ascending order as long as any cache
// holds all blocks so far, for a sliding kind from the end down.
using HolderRows = std::function<void(int kind, int64_t first, std::span<uint64_t> rows)>;
// In tokens, by bit; 0 for caches outside `members`.
std::array<int64_t, kCachesAtOnce> CachedPrefixes(std::span<const CacheKind> kinds, int block_size,
                                                  int64_t prompt_tokens, uint64_t members,
                                                  const HolderRows& holders);

}  // namespace quire
