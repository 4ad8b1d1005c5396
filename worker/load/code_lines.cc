// Codes of some bits out of the words of a tensor.
#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "worker/load/quantised_matrix.h"

namespace quire::load {
namespace {

constexpr int kPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of eight codes in a word of AWQ

}  // namespace

uint64_t CodeLines::Word(int64_t line, int64_t word) const {
  const std::byte* at =
      tensor->bytes.data() + (line * line_stride + word * word_stride) * word_bytes;
  if (word_bytes == 1) return static_cast<uint8_t>(*at);
  uint32_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint32_t CodeLines::At(int64_t line, int64_t element) const {
  int64_t place = interleaved ? element - element % 8 + kPlaces[element % 8] : element;
  if (high_first) place ^= 1;
  const int word_bits = 8 * word_bytes;
  const int64_t word = place * bits / word_bits;
  const int shift = static_cast<int>(place * bits % word_bits);
  uint64_t value = Word(line, word);
  if (shift + bits > word_bits) value |= Word(line, word + 1) << word_bits;
  return static_cast<uint32_t>(value >> shift) & ((1u << bits) - 1);
}

// Requires: `first` is a multiple of 32, !interleaved.
void CodeLines::Read32(int64_t line, int64_t first, uint8_t* codes) const {
  // Most files have codes of 8 or 4 bits, whose words are bytes one after another: they are
  // little-endian.
  if (bits == 8 || bits == 4) {
    uint8_t bytes[32] = {};
    const int64_t from = first * bits / 8;
    if (word_stride == 1) {
      std::memcpy(bytes, tensor->bytes.data() + line * line_stride * word_bytes + from,
                  static_cast<size_t>(4 * bits));
    } else {
      for (int i = 0; i < 4 * bits / word_bytes; ++i) {
        const uint64_t word = Word(line, from / word_bytes + i);
        std::memcpy(bytes + i * word_bytes, &word, static_cast<size_t>(word_bytes));
      }
    }
    if (bits == 8) {
      std::memcpy(codes, bytes, sizeof(bytes));
      return;
    }
    for (int j = 0; j < 16; ++j) {
      codes[2 * j] = high_first ? bytes[j] >> 4 : bytes[j] & 15;
      codes[2 * j + 1] = high_first ? bytes[j] & 15 : bytes[j] >> 4;
    }
    return;
  }
  const int word_bits = 8 * word_bytes;
  int64_t word = first * bits / word_bits;
  uint64_t value = 0;
  int held = 0;
  for (int j = 0; j < 32; ++j) {
    if (held < bits) {
      value |= Word(line, word++) << held;
      held += word_bits;
    }
    codes[j] = static_cast<uint8_t>(value & ((1u << bits) - 1));
    value >>= bits;
    held -= bits;
  }
  if (!high_first) return;
  for (int j = 0; j < 32; j += 2) std::swap(codes[j], codes[j + 1]);
}

void CodeLines::Read(int64_t line, int64_t first, int64_t count, uint8_t* read) const {
  if (bits == 8 && word_stride == 1) {
    std::memcpy(read, tensor->bytes.data() + line * line_stride * word_bytes + first,
                static_cast<size_t>(count));
    return;
  }
  const int64_t end = first + count;
  for (int64_t at = first; at < end;) {
    if (!interleaved && at % 32 == 0 && end - at >= 32) {
      Read32(line, at, read + (at - first));
      at += 32;
    } else {
      read[at - first] = static_cast<uint8_t>(At(line, at));
      ++at;
    }
  }
}

// Words of one place lie side by side, so that a few lines share what the cache holds.
void CodeLines::ReadLines(int64_t line, int64_t lines, int64_t count, uint8_t* read) const {
  QUIRE_CHECK(HasNibbleColumns() && count % 8 == 0);
  for (int64_t i = 0; i < count; i += 8) {
    for (int64_t j = 0; j < lines; ++j) {
      uint64_t codes = Word(line + j, i / 8);
      codes = (codes | codes << 16) & 0x0000ffff0000ffffu;
      codes = (codes | codes << 8) & 0x00ff00ff00ff00ffu;
      codes = (codes | codes << 4) & 0x0f0f0f0f0f0f0f0fu;
      std::memcpy(read + j * count + i, &codes, sizeof(codes));
    }
  }
}

void CodeLines::Read8(int64_t line, int64_t first, uint8_t (&read)[8]) const {
  QUIRE_CHECK(interleaved && bits == 4 && word_bytes == 4 && first % 8 == 0);
  const auto word = static_cast<uint32_t>(Word(line, first / 8));
  for (int j = 0; j < 8; ++j) read[j] = static_cast<uint8_t>(word >> 4 * kPlaces[j] & 15);
}

}  // namespace quire::load
