// Converts the text of a setting to its typed field, with its range and choices checked.
//
// Part of the schema, which alone calls it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/config/schema.h"

namespace quire::config {

inline constexpr size_t kMaxListValues = 1024;
inline constexpr size_t kMaxValueBytes = 65536;

// Writes `values` (one, or several for a list) to the flag's target. INVALID_ARGUMENT starts with
// `shown`.
absl::Status StoreValues(const Flag& flag, const std::vector<std::string>& values,
                         std::string_view shown);

// The target's current value as text: what the parsers would read back.
std::vector<std::string> TargetText(const Target& target);

// "N", "SIZE", "TIME"…: what --help calls the value; empty for a bool.
std::string ValueName(const Flag& flag);

}  // namespace quire::config
