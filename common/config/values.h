// Setting values as text: sizes, durations, numbers.
//
// Pure functions, any thread. Text comes from operators: every error states what would have been
// right.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/nearest.h"
#include "common/status.h"

namespace quire::config {

// A size; written 1048576, 512MiB, 1.5GiB, 2GB.
struct Bytes {
  int64_t value = 0;
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
};

// A length of time; written 200ms, 30s, 1.5m, 2h; a bare number is seconds.
struct Duration {
  int64_t milliseconds = 0;
  friend constexpr auto operator<=>(Duration, Duration) = default;
};

// INVALID_ARGUMENT "must be …, is …"; the caller puts the setting's name before it.
absl::StatusOr<int64_t> ParseInt(std::string_view text);
absl::StatusOr<double> ParseDouble(std::string_view text);  // finite
absl::StatusOr<bool> ParseBool(std::string_view text);      // true/false, yes/no, on/off, 1/0
absl::StatusOr<Bytes> ParseBytes(
    std::string_view text);  // KiB, MiB… are 1024-fold, kB, MB… 1000-fold
absl::StatusOr<Duration> ParseDuration(std::string_view text);

// The shortest exact spelling that the parsers read back: "512MiB", "1000B"; "30s", "250ms".
std::string FormatBytes(Bytes bytes);
std::string FormatDuration(Duration duration);
std::string FormatDouble(double value);

using quire::NearestMatch;

}  // namespace quire::config
