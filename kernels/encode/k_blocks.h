// Writes super-blocks of 256 values: the layouts that kernels/gguf_blocks.h reads.
//
// Pure. Groups of 32 (Q4_K, Q5_K) or 16 (Q6_K) have integer scales under one half for all.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/tensor.h"

namespace quire::kernels::encode {

// Stores a half and returns the number that a reader will find.
float PutHalf(float value, std::byte* at);

// `x` has 256 values; `type` is kQ4_K or kQ5_K.
void EncodeK45(DType type, std::span<const float> x, std::byte* out);
void EncodeQ6(std::span<const float> x, std::byte* out);

}  // namespace quire::kernels::encode
