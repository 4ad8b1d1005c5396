// The ranges of sampling wishes, checked at the edge so that every protocol names the same field
// and range.
//
// Any thread; pure. What depends on the model (vocabulary, context) is checked by the pipeline.
#pragma once

#include <optional>

#include "router/core/api.h"

namespace quire {

inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 256;
inline constexpr size_t kMaxBadWordBytes = 256;

// The first field out of its range, with the range; nullopt when all are served.
std::optional<ApiError> CheckSampling(const SamplingOptions& options);

}  // namespace quire
