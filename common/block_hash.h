// Identity of a block of tokens: hash(block) = XXH3-128(parent hash, token ids). The same function
// on both sides of the wire; the root is keyed by everything that makes keys and values differ.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/ids.h"

namespace quire {

struct BlockHash {
  uint64_t low = 0;  // the part that travels on the wire
  uint64_t high = 0;
  friend constexpr auto operator<=>(const BlockHash&, const BlockHash&) = default;
};

inline constexpr std::string_view kHashScheme = "xxh3-128-low64";

// The parent of a sequence's first block.
BlockHash RootHash(std::string_view model_id, std::string_view numerics_id,
                   std::string_view adapter, std::string_view salt);

BlockHash HashBlock(BlockHash parent, std::span<const TokenId> tokens);

}  // namespace quire

template <>
struct std::hash<quire::BlockHash> {
  size_t operator()(const quire::BlockHash& h) const noexcept { return h.low; }
};
