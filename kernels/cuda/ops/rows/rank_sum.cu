#include "kernels/cuda/ops/rows/rank_sum.h"

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kRankSumThreads = 256;

QUIRE_DEVICE int64_t RankSumPlace() {
  return static_cast<int64_t>(BlockX()) * kRankSumThreads + ThreadIndex();
}

// Four neighbours per thread: every rank's part begins on 16 bytes.
QUIRE_KERNEL(rank_sum, RankSumParams, kRankSumThreads, 1) {
  const int64_t i = 4 * RankSumPlace();
  if (i >= params.count) return;
  Vector16 sum = Load16(params.parts + i);
#pragma unroll 4
  for (int rank = 1; rank < params.ranks; ++rank) {
    const Vector16 part = Load16(params.parts + rank * params.count + i);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sum.word[k] = BitsOfFloat(FloatOfBits(sum.word[k]) + FloatOfBits(part.word[k]));
    }
  }
  Store16(params.out + i, sum);
}

QUIRE_KERNEL(rank_sum_narrow, RankSumParams, kRankSumThreads, 1) {
  const int64_t i = RankSumPlace();
  if (i >= params.count) return;
  float sum = params.parts[i];
  for (int rank = 1; rank < params.ranks; ++rank) sum += params.parts[rank * params.count + i];
  params.out[i] = sum;
}

runtime::Error LaunchRankSum(runtime::Runtime& runtime, runtime::StreamId stream,
                             const RankSumParams& params) {
  if (params.ranks < 1) return "rank_sum: no ranks";
  if (params.count <= 0) return {};
  const bool wide = params.count % 4 == 0;
  const int64_t threads = wide ? params.count / 4 : params.count;
  const auto blocks = static_cast<uint32_t>((threads + kRankSumThreads - 1) / kRankSumThreads);
  return runtime.Launch(stream,
                        wide ? QUIRE_KERNEL_OF(rank_sum, kRankSumThreads)
                             : QUIRE_KERNEL_OF(rank_sum_narrow, kRankSumThreads),
                        runtime::ShapeOf(blocks, 1, 0, params));
}

}  // namespace quire::kernels::cuda
