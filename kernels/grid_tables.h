// The codebooks of GGUF's IQ1, IQ2 and IQ3 types: what their indices mean.
//
// A point is 16 bits: of IQ1 and IQ2 eight pairs, of IQ3 four nibbles, the first at the bottom.
// Pairs of IQ1 are a number 0 … 2, one above its meaning; pairs of IQ2 and nibbles of IQ3 are the
// place of a magnitude (grid_blocks.h).
#pragma once

#include <cstdint>

namespace quire::kernels::grid {

extern const uint16_t kIq1[2048];  // of IQ1_S and IQ1_M
extern const uint16_t kIq2Xxs[256];
extern const uint16_t kIq2Xs[512];
extern const uint16_t kIq2S[1024];
extern const uint16_t kIq3Xxs[256];
extern const uint16_t kIq3S[512];

}  // namespace quire::kernels::grid
