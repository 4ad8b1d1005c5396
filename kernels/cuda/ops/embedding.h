// Rows of the embedding table by token.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// out[t] = table[tokens[t] − first_token] · scale, [rows, width] bfloat16; zeros for a token that
// is not in this rank's part of the vocabulary, [first_token, first_token + vocabulary).
struct EmbeddingParams {
  const uint16_t* table = nullptr;  // [vocabulary, width]
  const int32_t* tokens = nullptr;
  uint16_t* out = nullptr;
  int rows = 0;
  int width = 0;  // a multiple of 8
  int first_token = 0;
  int vocabulary = 0;
  float scale = 1.0f;
};

runtime::Error LaunchEmbedding(runtime::Runtime& runtime, runtime::StreamId stream,
                               const EmbeddingParams& params);

}  // namespace quire::kernels::cuda
