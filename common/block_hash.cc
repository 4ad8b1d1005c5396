#include "common/block_hash.h"

#define XXH_INLINE_ALL  // blocks are short: the call would cost as much as the hash
#include <xxhash.h>

#include <cstring>
#include <iterator>
#include <string>

namespace quire {
namespace {

// Each field is preceded by its length, so that no two lists of fields share their bytes.
void AppendField(std::string_view field, std::string& out) {
  uint64_t size = field.size();
  for (int i = 0; i < 8; ++i) {
    out += static_cast<char>(size & 0xFF);
    size >>= 8;
  }
  out += field;
}

}  // namespace

BlockHash RootHash(std::string_view model_id, std::string_view numerics_id,
                   std::string_view adapter, std::string_view salt) {
  const std::string_view fields[] = {model_id, numerics_id, adapter, salt};
  std::string bytes;
  bytes.reserve(sizeof(uint64_t) * std::size(fields) + model_id.size() + numerics_id.size() +
                adapter.size() + salt.size());
  for (const std::string_view field : fields) AppendField(field, bytes);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

BlockHash HashBlock(BlockHash parent, std::span<const TokenId> tokens) {
  // In one piece: the streaming state alone is larger than any block.
  constexpr size_t kMaxTokens = 64;
  const uint64_t words[2] = {parent.low, parent.high};
  XXH128_hash_t hash;
  if (tokens.size() <= kMaxTokens) {
    // The tokens begin a cache line: what is stored across two cannot be read back at once.
    alignas(64) char bytes[64 + kMaxTokens * sizeof(TokenId)];
    char* const first = bytes + 64 - sizeof(words);
    std::memcpy(first, words, sizeof(words));
    std::memcpy(bytes + 64, tokens.data(), tokens.size_bytes());
    hash = XXH3_128bits(first, sizeof(words) + tokens.size_bytes());
  } else {
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, words, sizeof(words));
    XXH3_128bits_update(&state, tokens.data(), tokens.size_bytes());
    hash = XXH3_128bits_digest(&state);
  }
  return {hash.low64, hash.high64};
}

}  // namespace quire
