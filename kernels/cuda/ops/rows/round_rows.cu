#include "kernels/cuda/ops/rows/round_rows.h"

#include "kernels/cuda/ops/rows/float_rows.h"

namespace quire::kernels::cuda {

constexpr int kRoundThreads = 128;

QUIRE_KERNEL(round_rows, RoundRowsParams, kRoundThreads, 1) {
  const int64_t block = static_cast<int64_t>(BlockX()) * kRoundThreads;
  const int64_t left = params.count / 8 - block;
  const int eights = left < kRoundThreads ? static_cast<int>(left) : kRoundThreads;
  const Eight e = LoadEight(params.in + 8 * block, ThreadIndex(), eights);
  if (ThreadIndex() < eights) Store16(params.out + 8 * (block + ThreadIndex()), PackBf16(e));
}

runtime::Error LaunchRoundRows(runtime::Runtime& runtime, runtime::StreamId stream,
                               const RoundRowsParams& params) {
  if (params.count % 8 != 0) {
    return "round_rows: " + std::to_string(params.count) + " elements: a multiple of 8 is needed";
  }
  if (params.count <= 0) return {};
  const int64_t blocks = (params.count / 8 + kRoundThreads - 1) / kRoundThreads;
  return runtime.Launch(stream, QUIRE_KERNEL_OF(round_rows, kRoundThreads),
                        runtime::ShapeOf(static_cast<uint32_t>(blocks), 1, 0, params));
}

}  // namespace quire::kernels::cuda
