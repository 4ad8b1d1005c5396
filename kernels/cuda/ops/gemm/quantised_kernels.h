// Which compiled kernel multiplies how many rows of x, for each form and width of quantised
// weights.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

struct GemmKernel {
  runtime::KernelHandle kernel;
  int tokens;
  uint32_t shared_bytes;
};

template <class Tile>
GemmKernel GemmKernelOf(runtime::KernelHandle kernel) {
  return {kernel, Tile::kTokens, Tile::kSharedBytes};
}

GemmKernel QuantisedKernel4(int m);
GemmKernel QuantisedKernel5(int m);
GemmKernel QuantisedKernel6(int m);
GemmKernel QuantisedKernel8(int m);
GemmKernel QuantisedKernelGrouped4(int m);
GemmKernel QuantisedKernelGrouped8(int m);
GemmKernel QuantisedKernelTable4(int m);
GemmKernel QuantisedKernelFloats4(int m);
GemmKernel QuantisedKernelE4m3(int m);
GemmKernel QuantisedKernelInt8ByCodes(int m);
GemmKernel QuantisedKernelE4m3ByCodes(int m);

}  // namespace quire::kernels::cuda
