// What a worker's numerics_id means for the bits of its results.
#pragma once

#include <string_view>

namespace quire {

// The suffix of the numerics_id of a worker whose results for a row depend on the rest of the
// batch, and on measurements that it made when it started.
inline constexpr std::string_view kBatchVariant = "/batch-variant";

// Whether outputs computed under `a` can be continued under `b` with the same bits. Where bits vary
// they cannot, not even on the same worker.
inline bool SameBits(std::string_view a, std::string_view b) {
  return a == b && !a.ends_with(kBatchVariant);
}

}  // namespace quire
