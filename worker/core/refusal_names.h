// The names of a Submit's refusals in metrics, logs and traces.
//
// Constants, any thread.
#pragma once

#include <array>
#include <string_view>

#include "common/wire/values.h"

namespace quire {

// In the order of RefusalCode.
inline constexpr std::array<std::string_view, 11> kRefusalNames = {
    "unspecified", "invalid",       "queue_full", "not_ready",   "draining",       "too_large",
    "unsupported", "stale_attempt", "duplicate",  "wrong_model", "deadline_passed"};
static_assert(kRefusalNames.size() == static_cast<size_t>(RefusalCode::kDeadlinePassed) + 1);

inline std::string_view RefusalName(RefusalCode code) {
  return kRefusalNames.at(static_cast<size_t>(code));
}

}  // namespace quire
