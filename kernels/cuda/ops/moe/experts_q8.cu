#include "kernels/cuda/ops/moe/grouped_block.h"

namespace quire::kernels::cuda {

using Few = QuantisedTile<8, QuantForm::kBlocks, 8, 8>;
using Some = QuantisedTile<8, QuantForm::kBlocks, 32, 6>;
using Many = QuantisedTile<8, QuantForm::kBlocks, 128, 4>;

QUIRE_KERNEL_AHEAD(experts_q8_8, GroupedParams, kGemmThreads, 2) { GroupedGemm<Few>(params); }
QUIRE_KERNEL_AHEAD(experts_q8_32, GroupedParams, kGemmThreads, 2) { GroupedGemm<Some>(params); }
QUIRE_KERNEL_AHEAD(experts_q8_128, GroupedParams, kGemmThreads, 1) { GroupedGemm<Many>(params); }

GemmKernel ExpertKernel8(int tile_rows) {
  if (tile_rows == 8) return GroupedKernelOf<Few>(QUIRE_KERNEL_OF(experts_q8_8, kGemmThreads));
  if (tile_rows == 32) return GroupedKernelOf<Some>(QUIRE_KERNEL_OF(experts_q8_32, kGemmThreads));
  return GroupedKernelOf<Many>(QUIRE_KERNEL_OF(experts_q8_128, kGemmThreads));
}

}  // namespace quire::kernels::cuda
