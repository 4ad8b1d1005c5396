// 64-bit numbers as text, where a reader of JSON would round them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace quire {

// Sixteen digits, "00000000deadbeef".
inline void AppendHex(uint64_t value, std::string& out) {
  constexpr size_t kDigits = 16;
  out.append(kDigits, '0');
  for (auto digit = out.rbegin(); value != 0; ++digit, value >>= 4) {
    *digit = "0123456789abcdef"[value & 0xF];
  }
}

inline std::string HexOf(uint64_t value) {
  std::string text;
  AppendHex(value, text);
  return text;
}

}  // namespace quire
