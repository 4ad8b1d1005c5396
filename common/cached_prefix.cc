#include "common/cached_prefix.h"

#include <algorithm>

#include "common/check.h"

namespace quire {

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
      const int64_t length = blocks * block_size;
      const int64_t first = std::max<int64_t>(0, length - window + 1) / block_size;
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

}  // namespace quire
