// One row of a matrix as the bytes of a quantised format, and the numbers that they stand for.
//
// Pure, any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cli/quantise/formats.h"

namespace quire::cli {

// Where the bytes of one row go: codes, and the scales of formats that keep them apart.
struct PackedRow {
  std::span<std::byte> codes;
  std::span<std::byte> scales;
};

// Bytes of a row with `cols` values.
int64_t CodeBytes(Packing packing, int64_t cols);
int64_t ScaleCount(Packing packing, int64_t cols);  // of bfloat16

// `row` is finite; `read_back` gets the value that each code means.
void PackRow(Packing packing, std::span<const float> row, PackedRow out,
             std::span<float> read_back);

}  // namespace quire::cli
