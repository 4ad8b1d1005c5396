#include "kernels/cuda/ops/embedding.h"

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/ops/embedding_quantised.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kEmbeddingThreads = 128;

QUIRE_KERNEL(embedding, EmbeddingParams, kEmbeddingThreads, 1) {
  const int v = BlockY() * kEmbeddingThreads + ThreadIndex();
  if (v >= params.width / 8) return;
  const int token = params.tokens[BlockX()] - params.first_token;
  Vector16 x{{0, 0, 0, 0}};
  if (token >= 0 && token < params.vocabulary) {
    x = Load16(params.table + static_cast<size_t>(token) * params.width + 8 * v);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x.word[i] = PackBf16(LowBf16(x.word[i]) * params.scale, HighBf16(x.word[i]) * params.scale);
    }
  }
  Store16(params.out + static_cast<size_t>(BlockX()) * params.width + 8 * v, x);
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
