// Element and block types of weights, and unowned views of them in a model file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/activation_rounding.h"

namespace quire::kernels {

class RowWriter;  // row_writer.h

// The types that weights may have. Quantised ones are GGUF's block formats as in a file, and the
// normal form of other checkpoints (grouped_blocks.h): rows are cut along K into blocks of
// BlockElements(type) elements that share scales.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kG4,
  kG4_128,
  kG8,
  kF8,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kTQ1_0,
  kTQ2_0,
  kQ1_0,
  kQ2_0,
  kNVFP4,
  kF4_16,
  kNF4,
  kFP4,
};

// Elements that share one block: 1 for floats, 64 for Q2_0, NVFP4, NF4 and FP4, 128 for G4_128 and
// Q1_0, 256 for Q*_K, TQ* and IQ* but IQ4_NL, else 32.
constexpr int BlockElements(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return 1;
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kIQ4_XS:
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
    case DType::kTQ1_0:
    case DType::kTQ2_0:
      return 256;
    case DType::kG4_128:
    case DType::kQ1_0:
      return 128;
    case DType::kQ2_0:
    case DType::kNVFP4:
    case DType::kNF4:
    case DType::kFP4:
      return 64;
    default:
      return 32;
  }
}

// Bytes of one block in a file or in the normal form.
constexpr int BlockBytes(DType type) {
  switch (type) {
    case DType::kF32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kQ8_0:
      return 34;
    case DType::kQ4_0:
      return 18;
    case DType::kQ4_1:
      return 20;
    case DType::kQ5_0:
      return 22;
    case DType::kQ5_1:
      return 24;
    case DType::kQ4_K:
      return 144;
    case DType::kQ5_K:
      return 176;
    case DType::kQ6_K:
      return 210;
    case DType::kG4:
      return 21;
    case DType::kG4_128:
      return 69;
    case DType::kG8:
      return 37;
    case DType::kF8:
      return 36;
    case DType::kQ2_K:
      return 84;
    case DType::kQ3_K:
      return 110;
    case DType::kIQ4_XS:
      return 136;
    case DType::kMXFP4:
      return 17;
    case DType::kIQ1_S:
      return 50;
    case DType::kIQ1_M:
      return 56;
    case DType::kIQ2_XXS:
      return 66;
    case DType::kIQ2_XS:
      return 74;
    case DType::kIQ2_S:
      return 82;
    case DType::kIQ3_XXS:
      return 98;
    case DType::kIQ3_S:
      return 110;
    case DType::kTQ1_0:
      return 54;
    case DType::kTQ2_0:
      return 66;
    case DType::kIQ4_NL:
    case DType::kQ1_0:
    case DType::kQ2_0:
      return 18;
    case DType::kF4_16:
      return 24;
    case DType::kNVFP4:
    case DType::kNF4:
    case DType::kFP4:
      return 36;
  }
  return 0;
}

constexpr const char* DTypeName(DType type) {
  constexpr const char* kNames[] = {
      "F32",    "F16",   "BF16",  "Q8_0",   "Q4_0",    "Q4_1",   "Q5_0",  "Q5_1",    "Q4_K",
      "Q5_K",   "Q6_K",  "G4",    "G4_128", "G8",      "F8",     "Q2_K",  "Q3_K",    "IQ4_NL",
      "IQ4_XS", "MXFP4", "IQ1_S", "IQ1_M",  "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
      "TQ1_0",  "TQ2_0", "Q1_0",  "Q2_0",   "NVFP4",   "F4_16",  "NF4",   "FP4"};
  return kNames[static_cast<int>(type)];
}

// A matrix [rows, cols] of a model file, row-major, cols = K a multiple of BlockElements(type); a
// vector is [1, cols]. The memory belongs to the mapped file and may be dropped once a backend has
// packed it.
struct WeightSource {
  DType type = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;
  // Bytes from row to row where the columns are a slice of wider rows; 0: rows are contiguous.
  int64_t row_stride = 0;
  ActivationRounding rounding = {};  // of its inputs, in the class of numerics that rounds them
  // Where it is not null, its rows are what `data` holds once a backend without TakesRowWriters is
  // to read them; row_stride is 0.
  const RowWriter* writer = nullptr;
  // Where it is not null, [cols]: column j is the weight of input order[j]. Only weights of
  // LinearOps have orders, and all parts of one weight the same.
  const int32_t* order = nullptr;

  int64_t RowBytes() const { return cols / BlockElements(type) * BlockBytes(type); }
  int64_t Bytes() const { return rows * RowBytes(); }  // without the gaps between rows
  int64_t RowStride() const { return row_stride == 0 ? RowBytes() : row_stride; }
  const std::byte* Row(int64_t row) const { return data + row * RowStride(); }
};

}  // namespace quire::kernels
