#include "common/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace quire {
namespace {

// The length of the valid character at `at`, or 0: no overlong forms, no surrogates, nothing above
// U+10FFFF (The Unicode Standard, table 3-7).
size_t CharacterSize(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u;
  };
  const auto follows = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned low = first == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = first == 0xED ? 0x9F : 0xBF;
    return follows(1, low, high) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned low = first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = first == 0xF4 ? 0x8F : 0xBF;
    return follows(1, low, high) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

// Most texts are ASCII from their beginning on: the number of such bytes, in steps of a word.
size_t AsciiSize(std::string_view bytes) {
  size_t size = 0;
  for (uint64_t word = 0; size + sizeof(word) <= bytes.size(); size += sizeof(word)) {
    std::memcpy(&word, bytes.data() + size, sizeof(word));
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (size < bytes.size() && static_cast<unsigned char>(bytes[size]) < 0x80) ++size;
  return size;
}

}  // namespace

std::string OnOneLine(std::string_view text, size_t most) {
  std::string line(text.substr(0, most));
  std::replace_if(
      line.begin(), line.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, '?');
  return ValidUtf8(line) + (text.size() > most ? "…" : "");
}

bool IsVisibleAscii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c > ' ' && c <= '~'; });
}

bool IsValidUtf8(std::string_view bytes) {
  for (size_t at = AsciiSize(bytes); at < bytes.size();) {
    const size_t size = CharacterSize(bytes, at);
    if (size == 0) return false;
    at += size;
  }
  return true;
}

std::string ValidUtf8(std::string_view bytes) {
  const size_t plain = AsciiSize(bytes);
  std::string text(bytes.substr(0, plain));
  for (size_t at = plain; at < bytes.size();) {
    const size_t size = CharacterSize(bytes, at);
    if (size == 0) {
      text += "\xEF\xBF\xBD";
      ++at;
    } else {
      text += bytes.substr(at, size);
      at += size;
    }
  }
  return text;
}

}  // namespace quire
