#include "kernels/cuda/ops/rows/copy_rows.h"

#include "kernels/cuda/device/memory.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kCopyThreads = 128;
constexpr int kCopyVectors = 4;  // of a thread, all loaded before the first is stored

QUIRE_KERNEL(copy_rows, CopyRowsParams, kCopyThreads, 1) {
  const int64_t i = BlockX();
  const int64_t from_row = params.from_rows != nullptr ? params.from_rows[i] : i;
  const int64_t to_row = params.to_rows != nullptr ? params.to_rows[i] : i;
  const auto* from = static_cast<const unsigned char*>(params.from) + from_row * params.row_bytes;
  auto* to = static_cast<unsigned char*>(params.to) + to_row * params.row_bytes;
  const int64_t first =
      (static_cast<int64_t>(BlockY()) * kCopyThreads * kCopyVectors + ThreadIndex()) * 16;
  Vector16 held[kCopyVectors];
#pragma unroll
  for (int v = 0; v < kCopyVectors; ++v) {
    const int64_t at = first + v * kCopyThreads * 16;
    if (at < params.row_bytes) held[v] = Load16(from + at);
  }
#pragma unroll
  for (int v = 0; v < kCopyVectors; ++v) {
    const int64_t at = first + v * kCopyThreads * 16;
    if (at < params.row_bytes) Store16(to + at, held[v]);
  }
}

runtime::Error LaunchCopyRows(runtime::Runtime& runtime, runtime::StreamId stream,
                              const CopyRowsParams& params) {
  if (params.row_bytes <= 0 || params.row_bytes % 16 != 0) {
    return "copy_rows: rows of " + std::to_string(params.row_bytes) +
           " bytes: a multiple of 16 is needed";
  }
  if (params.rows <= 0) return {};
  const int64_t block_bytes = 16 * kCopyThreads * kCopyVectors;
  const int64_t pieces = (params.row_bytes + block_bytes - 1) / block_bytes;
  return runtime.Launch(stream, QUIRE_KERNEL_OF(copy_rows, kCopyThreads),
                        runtime::ShapeOf(static_cast<uint32_t>(params.rows),
                                         static_cast<uint32_t>(pieces), 0, params));
}

}  // namespace quire::kernels::cuda
