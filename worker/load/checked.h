// Arithmetic on sizes that come from a file: an overflow is reported in the value, and never wraps.
#pragma once

#include <cstdint>
#include <optional>

namespace quire::load {

inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

inline std::optional<uint64_t> CheckedMultiply(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// The next multiple of `alignment` (not zero).
inline std::optional<uint64_t> CheckedAlign(uint64_t value, uint64_t alignment) {
  const std::optional<uint64_t> sum = CheckedAdd(value, alignment - 1);
  if (!sum.has_value()) return std::nullopt;
  return *sum / alignment * alignment;
}

}  // namespace quire::load
