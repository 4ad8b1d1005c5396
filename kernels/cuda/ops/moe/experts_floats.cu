#include "kernels/cuda/ops/moe/grouped_block.h"

namespace quire::kernels::cuda {

using Few = GemmTile<8, 5>;
using Some = GemmTile<32, 4>;
using Many = GemmTile<128, 3>;

QUIRE_KERNEL_AHEAD(experts_8, GroupedParams, kGemmThreads, 2) { GroupedGemm<Few>(params); }
QUIRE_KERNEL_AHEAD(experts_32, GroupedParams, kGemmThreads, 2) { GroupedGemm<Some>(params); }
QUIRE_KERNEL_AHEAD(experts_128, GroupedParams, kGemmThreads, 1) { GroupedGemm<Many>(params); }

GemmKernel ExpertKernelFloats(int tile_rows) {
  if (tile_rows == 8) return GroupedKernelOf<Few>(QUIRE_KERNEL_OF(experts_8, kGemmThreads));
  if (tile_rows == 32) return GroupedKernelOf<Some>(QUIRE_KERNEL_OF(experts_32, kGemmThreads));
  return GroupedKernelOf<Many>(QUIRE_KERNEL_OF(experts_128, kGemmThreads));
}

}  // namespace quire::kernels::cuda
