// 64-bit numbers as text, where a reader of JSON would round them.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

namespace quire {

// Sixteen digits, "00000000deadbeef".
inline std::string HexOf(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, value);
  return text;
}

}  // namespace quire
