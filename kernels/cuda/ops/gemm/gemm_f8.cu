#include "kernels/cuda/ops/gemm/quantised_kernels.h"
#include "kernels/cuda/ops/gemm/quantised_tile.h"

namespace quire::kernels::cuda {

using Few = QuantisedTile<8, QuantForm::kE4m3, 8, 8>;
using Some = QuantisedTile<8, QuantForm::kE4m3, 32, 6>;
using Many = QuantisedTile<8, QuantForm::kE4m3, 128, 3>;

QUIRE_KERNEL_AHEAD(gemm_f8_8, GemmParams, kGemmThreads, 2) { Gemm<Few>(params); }
QUIRE_KERNEL_AHEAD(gemm_f8_32, GemmParams, kGemmThreads, 2) { Gemm<Some>(params); }
QUIRE_KERNEL_AHEAD(gemm_f8_128, GemmParams, kGemmThreads, 1) { Gemm<Many>(params); }

GemmKernel QuantisedKernelE4m3(int m) {
  if (m <= 8) return GemmKernelOf<Few>(QUIRE_KERNEL_OF(gemm_f8_8, kGemmThreads));
  if (m <= 32) return GemmKernelOf<Some>(QUIRE_KERNEL_OF(gemm_f8_32, kGemmThreads));
  return GemmKernelOf<Many>(QUIRE_KERNEL_OF(gemm_f8_128, kGemmThreads));
}

}  // namespace quire::kernels::cuda
