// Floats as blocks of GGUF's quantised types, for files that Quire writes.
//
// Pure; host code. A value gets the nearest code under its group's scale and minimum. Q8_0 takes
// the scale that its largest value needs; the others search theirs (scale_search.h). The block
// formats and the idea of the search come from the ggml project's k-quants.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/tensor.h"

namespace quire::kernels {

// Whether EncodeRow writes this type.
constexpr bool CanEncode(DType type) {
  switch (type) {
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return true;
    default:
      return false;
  }
}

// `values`: whole blocks of the type, all finite; `out`: BlockBytes(type) for each block. Scales
// are halves: a group whose scale is beyond 65,504 reads back as infinite.
void EncodeRow(DType type, std::span<const float> values, std::byte* out);

}  // namespace quire::kernels
