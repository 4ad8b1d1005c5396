#include "kernels/cuda/ops/rank_sum_rows.h"

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kRankSumRowsThreads = 256;

// One rank's vector of 8 elements.
QUIRE_DEVICE void LoadRankPart(const RankSumRowsParams& params, int64_t place, float (&part)[8]) {
  const Vector16 own = Load16(params.parts + place);
  Vector16 delta = {};
  if (params.deltas != nullptr) delta = Load16(params.deltas + place);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    part[2 * k] = LowBf16(own.word[k]);
    part[2 * k + 1] = HighBf16(own.word[k]);
    if (params.deltas == nullptr) continue;
    part[2 * k] += LowBf16(delta.word[k]);
    part[2 * k + 1] += HighBf16(delta.word[k]);
  }
}

QUIRE_KERNEL(rank_sum_rows, RankSumRowsParams, kRankSumRowsThreads, 1) {
  const int64_t i = 8 * (static_cast<int64_t>(BlockX()) * kRankSumRowsThreads + ThreadIndex());
  if (i >= params.count) return;
  float sum[8];
  LoadRankPart(params, i, sum);
#pragma unroll 4
  for (int rank = 1; rank < params.ranks; ++rank) {
    float part[8];
    LoadRankPart(params, rank * params.count + i, part);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum[k] += part[k];
  }
  Vector16 out;
#pragma unroll
  for (int k = 0; k < 4; ++k) out.word[k] = PackBf16(sum[2 * k], sum[2 * k + 1]);
  Store16(params.out + i, out);
}

runtime::Error LaunchRankSumRows(runtime::Runtime& runtime, runtime::StreamId stream,
                                 const RankSumRowsParams& params) {
  if (params.ranks < 1) return "rank_sum_rows: no ranks";
  if (params.count % 8 != 0) {
    return "rank_sum_rows: " + std::to_string(params.count) +
           " elements: a multiple of 8 is needed";
  }
  if (params.count <= 0) return {};
  const int64_t threads = params.count / 8;
  const auto blocks =
      static_cast<uint32_t>((threads + kRankSumRowsThreads - 1) / kRankSumRowsThreads);
  return runtime.Launch(stream, QUIRE_KERNEL_OF(rank_sum_rows, kRankSumRowsThreads),
                        runtime::ShapeOf(blocks, 1, 0, params));
}

}  // namespace quire::kernels::cuda
