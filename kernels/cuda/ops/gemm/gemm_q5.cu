#include "kernels/cuda/ops/gemm/quantised_kernels.h"
#include "kernels/cuda/ops/gemm/quantised_tile.h"

namespace quire::kernels::cuda {

using Few = QuantisedTile<5, QuantForm::kBlocks, 8, 8>;
using Some = QuantisedTile<5, QuantForm::kBlocks, 32, 6>;
using Many = QuantisedTile<5, QuantForm::kBlocks, 128, 4>;

QUIRE_KERNEL_AHEAD(gemm_q5_8, GemmParams, kGemmThreads, 2) { Gemm<Few>(params); }
QUIRE_KERNEL_AHEAD(gemm_q5_32, GemmParams, kGemmThreads, 2) { Gemm<Some>(params); }
QUIRE_KERNEL_AHEAD(gemm_q5_128, GemmParams, kGemmThreads, 1) { Gemm<Many>(params); }

GemmKernel QuantisedKernel5(int m) {
  if (m <= 8) return GemmKernelOf<Few>(QUIRE_KERNEL_OF(gemm_q5_8, kGemmThreads));
  if (m <= 32) return GemmKernelOf<Some>(QUIRE_KERNEL_OF(gemm_q5_32, kGemmThreads));
  return GemmKernelOf<Many>(QUIRE_KERNEL_OF(gemm_q5_128, kGemmThreads));
}

}  // namespace quire::kernels::cuda
