// A text of YAML as a JSON value, in which every scalar is a text.
//
// Pure, any thread. The text may be hostile: depth and the count of values are bounded, with what
// aliases repeat counted each time.
#pragma once

#include <cstddef>
#include <string>

#include "common/json/json.h"
#include "common/status.h"

namespace quire::config {

inline constexpr size_t kMaxYamlDepth = 32;
inline constexpr size_t kMaxYamlValues = 100'000;

// INVALID_ARGUMENT for a text that is no YAML, or has a key that is no name; RESOURCE_EXHAUSTED
// past a bound. null where the text is empty.
absl::StatusOr<json::Value> JsonOfYaml(const std::string& text);

}  // namespace quire::config
