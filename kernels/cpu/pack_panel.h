// Packing of whole panels, sixteen rows at a time, for the formats of most weights.
//
// A panel is its rows with lines and columns exchanged in words of four bytes, so that squares of
// four words by four rows move in registers. pack.cc has the same row by row, for every format.
// Pure; compiled for x86-64 as such.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace quire::kernels::cpu {

// Packs sixteen rows of `k` elements, which begin `stride` bytes apart at `rows`, into a panel of
// their type. False: it does not pack this type, or this k, and has written nothing.
bool PackWholePanel(DType type, const std::byte* rows, int64_t stride, int64_t k, std::byte* panel);

}  // namespace quire::kernels::cpu
