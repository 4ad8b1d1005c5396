// Rows of MXFP4 as gpt-oss is published, in the blocks that kernels read.
//
// A published block has its 32 elements in the order of K, the lower nibble first, and its exponent
// in another tensor; GGUF's has the exponent first, then elements 0 … 15 in the lower nibbles and
// 16 … 31 in the upper ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::model {

struct Mxfp4Rows {
  const std::byte* blocks = nullptr;  // of the first row and block
  const std::byte* scales = nullptr;
  int64_t row_blocks = 0;  // blocks of a row that are taken
  int64_t row_stride = 0;  // blocks from row to row
};

// Writes rows first … first + count − 1: count · row_blocks blocks of 17 bytes.
void WriteMxfp4Rows(const Mxfp4Rows& from, int64_t first, int64_t count, std::byte* to);

}  // namespace quire::model
