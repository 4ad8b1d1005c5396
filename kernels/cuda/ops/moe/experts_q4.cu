#include "kernels/cuda/ops/moe/grouped_block.h"

namespace quire::kernels::cuda {

using Few = QuantisedTile<4, QuantForm::kBlocks, 8, 8>;
using Some = QuantisedTile<4, QuantForm::kBlocks, 32, 6>;
using Many = QuantisedTile<4, QuantForm::kBlocks, 128, 4>;

QUIRE_KERNEL_AHEAD(experts_q4_8, GroupedParams, kGemmThreads, 2) { GroupedGemm<Few>(params); }
QUIRE_KERNEL_AHEAD(experts_q4_32, GroupedParams, kGemmThreads, 2) { GroupedGemm<Some>(params); }
QUIRE_KERNEL_AHEAD(experts_q4_128, GroupedParams, kGemmThreads, 1) { GroupedGemm<Many>(params); }

GemmKernel ExpertKernel4(int tile_rows) {
  if (tile_rows == 8) return GroupedKernelOf<Few>(QUIRE_KERNEL_OF(experts_q4_8, kGemmThreads));
  if (tile_rows == 32) return GroupedKernelOf<Some>(QUIRE_KERNEL_OF(experts_q4_32, kGemmThreads));
  return GroupedKernelOf<Many>(QUIRE_KERNEL_OF(experts_q4_128, kGemmThreads));
}

}  // namespace quire::kernels::cuda
