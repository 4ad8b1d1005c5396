#include "kernels/cuda/ops/gemm/codes_tile.h"
#include "kernels/cuda/ops/gemm/quantised_kernels.h"

namespace quire::kernels::cuda {

using Few = CodesTile<false, 8, 8>;
using Some = CodesTile<false, 32, 6>;
// Sums of 128 of K beside those of all: half as many tokens as other forms have.
using Many = CodesTile<false, 64, 6>;

QUIRE_KERNEL_AHEAD(gemm_e8_8, GemmParams, kGemmThreads, 2) { Gemm<Few>(params); }
QUIRE_KERNEL_AHEAD(gemm_e8_32, GemmParams, kGemmThreads, 2) { Gemm<Some>(params); }
QUIRE_KERNEL_AHEAD(gemm_e8_64, GemmParams, kGemmThreads, 1) { Gemm<Many>(params); }

GemmKernel QuantisedKernelE4m3ByCodes(int m) {
  if (m <= 8) return GemmKernelOf<Few>(QUIRE_KERNEL_OF(gemm_e8_8, kGemmThreads));
  if (m <= 32) return GemmKernelOf<Some>(QUIRE_KERNEL_OF(gemm_e8_32, kGemmThreads));
  return GemmKernelOf<Many>(QUIRE_KERNEL_OF(gemm_e8_64, kGemmThreads));
}

}  // namespace quire::kernels::cuda
