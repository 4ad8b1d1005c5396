#include "kernels/cuda/ops/embedding/embedding.h"

#include "kernels/cuda/ops/embedding/embedding_quantised.h"
#include "kernels/cuda/ops/rows/float_rows.h"

namespace quire::kernels::cuda {

constexpr int kEmbeddingThreads = 128;

QUIRE_KERNEL(embedding, EmbeddingParams, kEmbeddingThreads, 1) {
  const int v = BlockY() * kEmbeddingThreads + ThreadIndex();
  const int eights = params.width / 8;
  const int token = params.tokens[BlockX()] - params.first_token;
  Vector16 x{{0, 0, 0, 0}};
  if (v < eights && token >= 0 && token < params.vocabulary) {
    x = Load16(params.table + static_cast<size_t>(token) * params.width + 8 * v);
  }
  Eight e = params.half ? UnpackF16(x) : UnpackBf16(x);
#pragma unroll
  for (int i = 0; i < 8; ++i) e.x[i] = e.x[i] * params.scale;
  const RowsOut out{nullptr, false, params.out, params.accumulate};
  StoreRow(out, static_cast<size_t>(BlockX()) * params.width, v, eights, e);
}

runtime::Error LaunchEmbedding(runtime::Runtime& runtime, runtime::StreamId stream,
                               const EmbeddingParams& params) {
  if (params.width <= 0 || params.width % 8 != 0) {
    return "embedding: width " + std::to_string(params.width) + ": a multiple of 8 is needed";
  }
  if (params.rows <= 0) return {};
  if (params.quantised.data != nullptr) return LaunchQuantisedEmbedding(runtime, stream, params);
  const int pieces = (params.width / 8 + kEmbeddingThreads - 1) / kEmbeddingThreads;
  return runtime.Launch(stream, QUIRE_KERNEL_OF(embedding, kEmbeddingThreads),
                        runtime::ShapeOf(static_cast<uint32_t>(params.rows),
                                         static_cast<uint32_t>(pieces), 0, params));
}

}  // namespace quire::kernels::cuda
