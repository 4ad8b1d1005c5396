#include "kernels/cuda/ops/gemm/codes_tile.h"
#include "kernels/cuda/ops/gemm/quantised_kernels.h"

namespace quire::kernels::cuda {

using Few = CodesTile<true, 8, 8>;
using Some = CodesTile<true, 32, 6>;
using Many = CodesTile<true, 128, 4>;

QUIRE_KERNEL_AHEAD(gemm_i8_8, GemmParams, kGemmThreads, 2) { Gemm<Few>(params); }
QUIRE_KERNEL_AHEAD(gemm_i8_32, GemmParams, kGemmThreads, 2) { Gemm<Some>(params); }
QUIRE_KERNEL_AHEAD(gemm_i8_128, GemmParams, kGemmThreads, 1) { Gemm<Many>(params); }

GemmKernel QuantisedKernelInt8ByCodes(int m) {
  if (m <= 8) return GemmKernelOf<Few>(QUIRE_KERNEL_OF(gemm_i8_8, kGemmThreads));
  if (m <= 32) return GemmKernelOf<Some>(QUIRE_KERNEL_OF(gemm_i8_32, kGemmThreads));
  return GemmKernelOf<Many>(QUIRE_KERNEL_OF(gemm_i8_128, kGemmThreads));
}

}  // namespace quire::kernels::cuda
