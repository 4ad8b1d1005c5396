// The tensor core of the emulated grid: one product of tiles, from the inputs of a warp's lanes.
//
// Owned by a warp. Lanes fill in their part while they have it: the product finds all of it in one
// place.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/device/emulated_calls.h"

namespace quire::kernels::cuda::emulate {

// Fragments are laid out as for mma.sync.m16n8k16 (device/tensor_core.h), or of eight-bit numbers
// as for mma.sync.m16n8k32.
struct ProductTile {
  // [register][lane % 4][lane / 4].
  alignas(32) uint32_t a[4][4][8];
  alignas(32) uint32_t b[2][4][8];
  std::array<float*, 32> d;  // four sums of each lane
  emulated::Element element = emulated::Element::kBf16;
  bool minus_zero = false;  // among the sums
};

// The input of lane `lane`.
void GiveFragments(ProductTile& tile, uint32_t lane, float* d, const uint32_t* a,
                   const uint32_t* b);
// d[16 × 8] += a[16 × 16] · b[16 × 8]: terms in the order of k, in float64, rounded once.
void MultiplyTile(ProductTile& tile);
// d[16 × 8] += a[16 × 32] · b[32 × 8] of int8 or e4m3 (device/tensor_core8.h).
void MultiplyBytes(ProductTile& tile);

}  // namespace quire::kernels::cuda::emulate
