#include "common/cached_prefix.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "common/check.h"

namespace quire {
namespace {

// The block at which the window begins that a sliding kind must hold for a prefix of `blocks`.
int64_t WindowBegin(int64_t blocks, int block_size, int window) {
  return std::max<int64_t>(0, blocks * block_size - window + 1) / block_size;
}

// Rows of the first blocks of a sliding kind, read from the end down as far as they are needed.
class RowsFromTheEnd {
 public:
  RowsFromTheEnd(int kind, int window, int64_t blocks)
      : kind_(kind), window_(window), lowest_(blocks), rows_(static_cast<size_t>(blocks)) {}

  int window() const { return window_; }
  uint64_t At(int64_t block, const HolderRows& holders) {
    if (block < lowest_) {
      const int64_t first = std::max<int64_t>(0, std::min(block, lowest_ - kAtOnce));
      holders(kind_, first,
              std::span(rows_).subspan(static_cast<size_t>(first),
                                       static_cast<size_t>(lowest_ - first)));
      lowest_ = first;
    }
    return rows_[static_cast<size_t>(block)];
  }

 private:
  static constexpr int64_t kAtOnce = 64;
  const int kind_;
  const int window_;
  int64_t lowest_;  // rows from here on are known
  std::vector<uint64_t> rows_;
};

// How many of the first blocks each cache holds of a full kind, into `length[cache]`; caches that
// hold none leave `alive`.
void ShortenToFullKind(int kind, const HolderRows& holders, uint64_t& alive, int64_t blocks,
                       std::array<int64_t, kCachesAtOnce>& length) {
  std::array<uint64_t, 64> rows;
  uint64_t all_so_far = alive;
  size_t at_once = 8;  // no cache has most prompts, or more than a few of their blocks
  for (int64_t first = 0; first < blocks && all_so_far != 0;) {
    const auto count =
        static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(at_once), blocks - first));
    holders(kind, first, std::span(rows).first(count));
    for (size_t i = 0; i < count; ++i) {
      uint64_t lost = all_so_far & ~rows[i];
      all_so_far &= rows[i];
      const int64_t held = first + static_cast<int64_t>(i);
      for (; lost != 0; lost &= lost - 1) {
        const int cache = std::countr_zero(lost);
        length[static_cast<size_t>(cache)] = std::min(length[static_cast<size_t>(cache)], held);
        if (held == 0) alive &= ~(uint64_t{1} << cache);
      }
    }
    first += static_cast<int64_t>(count);
    at_once = std::min(2 * at_once, rows.size());
  }
}

// Which of `caches` hold what the token after `blocks` blocks would see; each of the others is put
// down, in `at`, for the shorter prefix that ends before a block that it misses.
uint64_t HoldWindows(std::span<RowsFromTheEnd> sliding, const HolderRows& holders, int64_t blocks,
                     int block_size, std::vector<uint64_t>& at) {
  uint64_t caches = at[static_cast<size_t>(blocks)];
  for (RowsFromTheEnd& rows : sliding) {
    const int64_t begin = WindowBegin(blocks, block_size, rows.window());
    for (int64_t block = blocks - 1; block >= begin && caches != 0; --block) {
      const uint64_t held = rows.At(block, holders);
      at[static_cast<size_t>(block)] |= caches & ~held;
      caches &= held;
    }
  }
  return caches;
}

}  // namespace

int64_t CachedPrefix(std::span<const CacheKind> kinds, int block_size, int64_t prompt_tokens,
                     const std::function<bool(int kind, int64_t block)>& holds) {
  QUIRE_CHECK(block_size > 0);
  if (kinds.empty() || prompt_tokens < 2) return 0;
  int64_t blocks = (prompt_tokens - 1) / block_size;
  for (int kind = 0; kind < static_cast<int>(kinds.size()); ++kind) {
    if (kinds[kind].window > 0) continue;
    int64_t held = 0;
    while (held < blocks && holds(kind, held)) ++held;
    blocks = std::min(blocks, held);
  }
  // Shorten until every sliding kind holds what the next token would see.
  while (blocks > 0) {
    int64_t missing = -1;
    for (int kind = 0; kind < static_cast<int>(kinds.size()) && missing < 0; ++kind) {
      const int window = kinds[kind].window;
      if (window == 0) continue;
      const int64_t first = WindowBegin(blocks, block_size, window);
      for (int64_t block = blocks - 1; block >= first; --block) {
        if (!holds(kind, block)) {
          missing = block;
          break;
        }
      }
    }
    if (missing < 0) break;
    blocks = missing;  // a shorter prefix that ends before the missing block
  }
  return blocks * block_size;
}

std::array<int64_t, kCachesAtOnce> CachedPrefixes(std::span<const CacheKind> kinds, int block_size,
                                                  int64_t prompt_tokens, uint64_t members,
                                                  const HolderRows& holders) {
  QUIRE_CHECK(block_size > 0);
  std::array<int64_t, kCachesAtOnce> length{};
  if (kinds.empty() || prompt_tokens < 2) return length;
  const int64_t limit = (prompt_tokens - 1) / block_size;
  uint64_t alive = members;
  for (uint64_t left = members; left != 0; left &= left - 1) {
    length[static_cast<size_t>(std::countr_zero(left))] = limit;
  }
  for (int kind = 0; kind < static_cast<int>(kinds.size()); ++kind) {
    if (kinds[static_cast<size_t>(kind)].window > 0) continue;
    const int64_t longest = *std::max_element(length.begin(), length.end());
    ShortenToFullKind(kind, holders, alive, longest, length);
  }
  const int64_t longest = *std::max_element(length.begin(), length.end());
  std::vector<RowsFromTheEnd> sliding;
  for (int kind = 0; kind < static_cast<int>(kinds.size()); ++kind) {
    const int window = kinds[static_cast<size_t>(kind)].window;
    if (window > 0) sliding.emplace_back(kind, window, longest);
  }
  if (!sliding.empty()) {
    std::vector<uint64_t> at(static_cast<size_t>(longest) + 1);  // caches by length to be tried
    for (uint64_t left = alive; left != 0; left &= left - 1) {
      const int cache = std::countr_zero(left);
      at[static_cast<size_t>(length[static_cast<size_t>(cache)])] |= uint64_t{1} << cache;
    }
    length.fill(0);
    for (int64_t blocks = longest; blocks > 0; --blocks) {
      uint64_t hit = HoldWindows(sliding, holders, blocks, block_size, at);
      for (; hit != 0; hit &= hit - 1) length[static_cast<size_t>(std::countr_zero(hit))] = blocks;
    }
  }
  for (int64_t& each : length) each *= block_size;
  return length;
}

}  // namespace quire
