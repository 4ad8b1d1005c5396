// What a worker's numerics_id says of the bits of its results.
#pragma once

#include <string_view>

namespace quire {

// How a numerics_id ends whose worker computes a row by what else is in the batch, and by what it
// has timed when it began.
inline constexpr std::string_view kBatchVariant = "/batch-variant";

// Whether outputs written under `a` go on under `b` as if nothing had happened. Where bits vary
// they do not, on the same worker neither.
inline bool SameBits(std::string_view a, std::string_view b) {
  return a == b && !a.ends_with(kBatchVariant);
}

}  // namespace quire
