// Quantised weights in device memory: in the order in which a tensor core's lanes read them, with
// the file's scales.
//
// A matrix [rows, cols] is cut into fragments of 16 rows, rows padded with zeros; a fragment is one
// stream of tiles of 64 of K:
//   tile: [quants][high bits][scales]; before every fourth, where the format has blocks of 256,
//   [super scales]; at the end, for codes by codes, [step f32] of each group of K.
// With g = lane / 4, t = lane % 4, element j of eight of a step of 16 of K is row g + 8 · (j / 2 %
// 2), k = 2t + j % 2 + 8 · (j / 4): what mma.m16n8k16 takes in registers. A lane's quants of a
// tile:
//   4, 5, 6 bits: 16 bytes, word w is step w, nibble j is element j (in the form kGrouped nibble
//   j / 2 + 4 · (j % 2), so that both of a register are 16 bits apart); then for 5 bits one word
//   whose bit 8w + j is the fifth; for 6 bits two words, of steps 0–1 and 2–3, with pairs
//   8 · (w % 2) + j. 8 bits: two vectors of 16 bytes, bytes are the elements of steps 0–1 and of
//   2–3; codes of integers plus 128. The forms of codes by codes have steps of 32 of K: 16 bytes of
//   a lane are element i of register r at 4r + i (device/tensor_core8.h).
// Scales of a tile are arrays by QuantScales, one after another: for each group of K, rows 0 … 15
// side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/ops/gemm/quantised_scales.h"
#include "kernels/tensor.h"

namespace quire::kernels::cuda {

// What a code means. Each form and width has kernels of its own.
enum class QuantForm : int {
  kBlocks,   // GGUF's integers of 4, 5, 6, 8 bits: w = step · q + least
  kGrouped,  // integers of 4 or 8 bits: w = (q − zero) · step
  kTable,    // 4 bits: w = step · table[q], and for Q2_K + least
  kFloats,   // 4 bits: w = float_table[q] · step
  kE4m3,     // 8 bits: w = e4m3(q) · step
  // Multiplied with codes of activations (encode_rows.h), under steps of whole rows or, of e4m3, of
  // 128 of K.
  kInt8ByCodes,
  kE4m3ByCodes
};
constexpr bool IsByCodes(QuantForm form) { return form >= QuantForm::kInt8ByCodes; }

struct QuantisedWeight {
  const unsigned char* data = nullptr;
  int64_t fragment_bytes = 0;
  int tile_bytes = 0;
  int super_bytes = 0;
  int bits = 0;  // 4, 5, 6 or 8
  int block_elements = 32;
  QuantForm form = QuantForm::kBlocks;
  QuantScales scales = QuantScales::kD;
  int group_elements = 32;  // of K that share a scale: 16, 32, or 64 for longer groups
  float offset = 0.0f;      // of kBlocks
  float unit = 1.0f;        // of kTable: what steps of the file are multiplied by
  int end_groups = 0;       // of codes by codes: groups of K with steps at the end
  // Of kGrouped: all steps are numbers of the type of the product, of at most 256, so that products
  // with codes round once in it. Filled in by the loader.
  bool narrow_steps = false;
  uint32_t table[4] = {};           // of kTable: 16 integers plus 128, as bytes
  uint32_t float_table[4][4] = {};  // of kFloats: byte by byte of 16 float32, lowest first
};

inline constexpr int kByCodesTileBytes = 1024;
// Bytes of a tile before its scales.
constexpr int ScalesAt(int bits) {
  return bits == 8 ? 1024 : bits == 6 ? 768 : bits == 5 ? 640 : 512;
}
// Whether weights of this type, with rows of `cols`, can stay quantised.
bool CanStayQuantised(DType type, int64_t cols);
// Whether rows of this form can be looked up, too.
constexpr bool CanLookUp(QuantForm form) {
  return form == QuantForm::kBlocks || form == QuantForm::kTable;
}
// Without data.
QuantisedWeight QuantisedLayout(DType type, int64_t cols);
inline size_t QuantisedBytes(const QuantisedWeight& layout, int64_t rows) {
  return static_cast<size_t>((rows + 15) / 16 * layout.fragment_bytes);
}
// The same for weights that are multiplied with codes of activations, of kG8 with steps for rows
// and zeros of 0, or kF8 with steps for rows or 128 of K.
QuantisedWeight LayoutByCodes(DType type, int64_t cols, bool step_of_row);
// Packs a matrix, or one that is below others of its type: its first row becomes `first_row`.
// `packed` begins as zeros. Host code; several threads may pack fragments.
void PackQuantised(const WeightSource& source, int64_t first_row, std::byte* packed);
void PackByCodes(const WeightSource& source, const QuantisedWeight& layout, int64_t first_row,
                 std::byte* packed);
// Whether products of this type, float16 or bfloat16, may have narrow_steps for these weights.
bool HasNarrowSteps(const WeightSource& source, bool half);

}  // namespace quire::kernels::cuda
