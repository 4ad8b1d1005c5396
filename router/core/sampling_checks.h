// The ranges of sampling parameters, checked at the edge so that every protocol names the same
// field and range.
//
// Any thread; pure. What depends on the model (vocabulary, context) is checked by the pipeline.
#pragma once

#include <optional>

#include "common/wire/sampling.h"
#include "router/core/api.h"

namespace quire {

inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 256;
// Each becomes two token sequences, without and with a space before it.
inline constexpr size_t kMaxBadWordStrings = kMaxBadWords / 2;
inline constexpr size_t kMaxBadWordBytes = 256;

// The first field out of its range, with the range; nullopt when all are served. With `echo` the
// prompt is a part of the answer. max_tokens may be 0 when the request needs something of the
// prompt.
std::optional<ApiError> CheckSampling(const SamplingOptions& options, bool echo = false);

// Strings that are not empty, each of at most `max_bytes` of UTF-8, and at most `max_count` of
// them.
std::optional<ApiError> CheckStrings(std::string_view field,
                                     const std::vector<std::string>& strings, size_t max_count,
                                     size_t max_bytes);

// −1 (as many as fit beside the answer) or at least 1.
std::optional<ApiError> CheckTruncation(const std::optional<int32_t>& truncate_prompt_tokens);

}  // namespace quire
