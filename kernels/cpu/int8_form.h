// The int8 class: which formats it multiplies, the rule of its sums, and how quantised rows lie.
//
// Rows of x are quantised in blocks of 32 k: dx = max |x| / 127, q = x · (127 / max |x|) to the
// nearest even, so q is −127 … 127. A block whose largest magnitude is below 127 / FLT_MAX counts
// as zeros; one that is not finite has dx = NaN, so that its row becomes NaN. A block depends on
// nothing but its own 32 values.
//
// The rule of sums: in a block, S = Σ code · q is an exact integer. Blocks follow in the order of
// k, in one chain of floats per output that starts at +0, each step one rounded fma:
//   acc = fma(float(S), scale · dx, acc), and where the format has a minimum m (of the K formats
//   −(dmin · min)), acc = fma(m, dx · float(Σ q), acc).
// `scale` is d, or d · scale of the K formats, rounded; its product with dx is rounded next.
// Formats with scales of 16 k sum t = S₀ · scale₀ + S₁ · scale₁, which is exact (below 2^24), and
// take d · dx for the factor; Q2_K also u = Σq₀ · min₀ + Σq₁ · min₁ and −(dmin · dx).
// NVFP4 and F4_16, whose sixteen k have floats of their own for scales, add each of them in turn:
// acc = fma(float(S₀), scale₀ · dx, acc), then the same of the second.
// Rows, tiles, threads and instruction sets change no bit of it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/formats.h"

namespace quire::kernels::cpu {

// What of a format its dot products depend on. Formats of one form share their kernels.
struct Int8Form {
  bool halves = false;     // a scale for each 16 k
  bool own = false;        // which is a float of its own
  bool minimum = false;    // an addend for each block (Q2_K: for each half)
  bool zero = false;       // an integer of each row is taken off every code: G4, G8
  bool is_signed = false;  // codes are signed bytes
  int offset_bits = 0;     // else 2^offset_bits is taken off every code; 0: nothing
  int word_quads = 0;      // kDotsInWords: quads whose products one word adds up

  friend constexpr bool operator==(const Int8Form&, const Int8Form&) = default;
};

constexpr Int8Form Int8FormOf(DType type) {
  Int8Form form;
  form.halves = HasHalves(type);
  form.own = HasOwnScales(type);
  form.minimum = HasMinimum(type);
  form.zero = grouped::HasZero(type);
  form.is_signed = type == DType::kQ8_0 || gguf::HasTable(type) || type == DType::kG8;
  for (int offset = Offset(type); offset > 1; offset /= 2) ++form.offset_bits;
  return form;
}

// The largest magnitude of a code as a dot product takes it.
constexpr int LargestCode(DType type) {
  if (gguf::HasTable(type)) {
    int largest = 0;
    for (const int8_t value : gguf::TableOf(type)) {
      largest = std::max({largest, int{value}, -int{value}});
    }
    return largest;
  }
  if (type == DType::kQ8_0 || type == DType::kG8) return 128;
  if (type == DType::kQ6_K) return 63;
  if (HasPairs(type)) return HasThirdBit(type) ? 7 : 3;
  return HasFifthBit(type) ? 31 : 15;
}

// How many quads a word of 16 bits has room for. A quad adds two products to it, each at most 127
// times the largest code. Where an offset is taken off, only what is left must fit: words may wrap
// around before.
constexpr int WordQuads(DType type) {
  const int largest = Offset(type) > 1 ? Offset(type) : LargestCode(type);
  const int fit = 32'767 / (2 * 127 * largest);
  return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

// The form as kernels of V are instantiated with it.
template <class V>
constexpr Int8Form FormFor(DType type) {
  Int8Form form = Int8FormOf(type);
  if (V::kDotsInWords) form.word_quads = WordQuads(type);
  return form;
}

// A block of a tile of quantised rows: 8 × [row] words of four q, then for each row dx, dx · Σq,
// −Σq, and −Σq of the first and of the second 16 k (kDotsInWords: a pair of words each, for the k
// whose products one word adds up). Blocks of a chunk of K lie one after the other, then come the
// same of the next tile, then the next chunk: a pass over all tiles of a chunk is one stream.
inline constexpr int kInt8BlockWords = 13;
enum Int8Word : int { kInt8Dx = 8, kInt8DxSum = 9, kInt8Sum = 10, kInt8HalfSums = 11 };

// Where chunk `begin` … `end` − 1 of the tile begins, in words, of `all_rows` rows.
constexpr int64_t Int8Place(int64_t begin, int64_t end, int64_t all_rows, int64_t first_row) {
  return kInt8BlockWords * (begin / 32 * all_rows + (end - begin) / 32 * first_row);
}

// Words of quantised rows.
constexpr int64_t Int8RowWords(int64_t k) { return k / 32 * kInt8BlockWords; }

}  // namespace quire::kernels::cpu
