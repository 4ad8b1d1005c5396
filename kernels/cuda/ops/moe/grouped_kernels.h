// Which compiled kernel multiplies tiles of how many rows, for each form and width of the weights
// of experts.
#pragma once

#include "kernels/cuda/ops/gemm/quantised_kernels.h"

namespace quire::kernels::cuda {

// tile_rows: 8, 32 or 128.
GemmKernel ExpertKernelFloats(int tile_rows);
GemmKernel ExpertKernel4(int tile_rows);
GemmKernel ExpertKernel5(int tile_rows);
GemmKernel ExpertKernel6(int tile_rows);
GemmKernel ExpertKernel8(int tile_rows);
GemmKernel ExpertKernelGrouped4(int tile_rows);
GemmKernel ExpertKernelGrouped8(int tile_rows);
GemmKernel ExpertKernelTable4(int tile_rows);
GemmKernel ExpertKernelFloats4(int tile_rows);
GemmKernel ExpertKernelE4m3(int tile_rows);

}  // namespace quire::kernels::cuda
