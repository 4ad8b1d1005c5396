// Seeded numbers on which a worker compares the processor's tiles with vectors.
//
// They come from a file of plain C++: what is compiled for AMX shares no library code with the rest
// of the program, which runs on processors without it.
#pragma once

#include <cstdint>

#include "kernels/cpu/amx_sizes.h"

namespace quire::kernels::cpu {

// bfloat16. Every fourth row of x has subnormal numbers and the least normal ones alone.
struct AmxNumbers {
  static constexpr int kColumns = 3 * kAmxBlock;
  uint16_t x[kAmxRows * kColumns];
  uint16_t weights[2][16 * kColumns];  // of two panels
};

AmxNumbers MakeAmxNumbers();

}  // namespace quire::kernels::cpu
