#include "kernels/cuda/ops/rank_columns.h"

#include "kernels/cuda/device/kernel.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kRankColumnsThreads = 256;
constexpr int kRankColumnsOfThread = 4;  // all loaded before the first is stored

// A rank's part of a row begins on 16 bytes, its ids in the row of all of them anywhere: words are
// moved one by one.
QUIRE_KERNEL(rank_columns, RankColumnsParams, kRankColumnsThreads, 1) {
  const int row = BlockY();
  const int first = BlockX() * kRankColumnsThreads * kRankColumnsOfThread + ThreadIndex();
  float* out = params.out + static_cast<int64_t>(row) * params.out_stride;
  float held[kRankColumnsOfThread];
#pragma unroll
  for (int i = 0; i < kRankColumnsOfThread; ++i) {
    const int id = first + i * kRankColumnsThreads;
    if (id >= params.vocabulary) continue;
    const int rank = id / params.width;
    const int64_t part = static_cast<int64_t>(rank) * params.rows + row;
    held[i] = params.parts[part * params.part_stride + (id - rank * params.width)];
  }
#pragma unroll
  for (int i = 0; i < kRankColumnsOfThread; ++i) {
    const int id = first + i * kRankColumnsThreads;
    if (id < params.vocabulary) out[id] = held[i];
  }
}

runtime::Error LaunchRankColumns(runtime::Runtime& runtime, runtime::StreamId stream,
                                 const RankColumnsParams& params) {
  if (params.ranks < 1 || params.width < 1 || params.part_stride < params.width ||
      params.out_stride < params.vocabulary ||
      static_cast<int64_t>(params.width) * params.ranks < params.vocabulary) {
    return "rank_columns: " + std::to_string(params.ranks) + " ranks of " +
           std::to_string(params.width) + " ids, in rows of " + std::to_string(params.part_stride) +
           ", do not make rows of " + std::to_string(params.vocabulary);
  }
  if (params.rows <= 0 || params.vocabulary <= 0) return {};
  constexpr int kOfBlock = kRankColumnsThreads * kRankColumnsOfThread;
  return runtime.Launch(
      stream, QUIRE_KERNEL_OF(rank_columns, kRankColumnsThreads),
      runtime::ShapeOf(static_cast<uint32_t>((params.vocabulary + kOfBlock - 1) / kOfBlock),
                       static_cast<uint32_t>(params.rows), 0, params));
}

}  // namespace quire::kernels::cuda
