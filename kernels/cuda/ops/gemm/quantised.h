// Quantised weights in device memory: in the order in which a tensor core's lanes read them, with
// the file's scales.
//
// A matrix [rows, cols] is cut into fragments of 16 rows, rows padded with zeros; a fragment is one
// stream of tiles of 64 of K:
//   tile: [quants][high bits][scales]; before every fourth, where the format has blocks of 256,
//   [super scales].
// With g = lane / 4, t = lane % 4, element j of eight of a step of 16 of K is row g + 8 · (j / 2 %
// 2), k = 2t + j % 2 + 8 · (j / 4): what mma.m16n8k16 takes in registers. A lane's quants of a
// tile:
//   4, 5, 6 bits: 16 bytes, word w is step w, nibble j is element j; then for 5 bits one word whose
//   bit 8w + j is the fifth; for 6 bits two words, of steps 0–1 and 2–3, with pairs 8 · (w % 2) +
//   j. 8 bits: two vectors of 16 bytes, bytes are the elements of steps 0–1 and of 2–3, plus 128.
// Scales of a tile, rows 0 … 15 side by side for each group of 32 of K (of 16 for 6 bits):
//   d (float16); d and minimum (float16); scale and minimum (u8), super [d][dmin]; scale (i8),
//   super [d].
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace quire::kernels::cuda {

enum class QuantScales : int {
  kD,      // Q4_0, Q5_0, Q8_0: w = d · (q − offset)
  kDM,     // Q4_1, Q5_1: w = d · q + m
  kSuper,  // Q4_K, Q5_K: w = d · scale · q − dmin · min
  kSigned  // Q6_K: w = d · scale · (q − 32)
};

struct QuantisedWeight {
  const unsigned char* data = nullptr;
  int64_t fragment_bytes = 0;
  int tile_bytes = 0;
  int super_bytes = 0;
  int bits = 0;  // 4, 5, 6 or 8
  int block_elements = 32;
  QuantScales scales = QuantScales::kD;
  float offset = 0.0f;
};

// Whether weights of this type, with rows of `cols`, can stay quantised.
bool CanStayQuantised(DType type, int64_t cols);
// Without data.
QuantisedWeight QuantisedLayout(DType type, int64_t cols);
inline size_t QuantisedBytes(const QuantisedWeight& layout, int64_t rows) {
  return static_cast<size_t>((rows + 15) / 16 * layout.fragment_bytes);
}
// Packs a matrix, or one that is below others of its type: its first row becomes `first_row`.
// `packed` begins as zeros. Host code; several threads may pack fragments.
void PackQuantised(const WeightSource& source, int64_t first_row, std::byte* packed);

}  // namespace quire::kernels::cuda
