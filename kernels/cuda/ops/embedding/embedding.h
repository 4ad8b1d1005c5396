// Rows of the embedding table by token, from a table of bfloat16 or float16 or one that stays
// quantised.
#pragma once

#include "kernels/cuda/ops/gemm/quantised.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// out[t] = table[tokens[t] − first_token] · scale, or out[t] += that, [rows, width] float32; zeros
// for a token that is not in this rank's part of the vocabulary, [first_token, first_token +
// vocabulary). A quantised table gives the bits of one that was expanded to the same type.
struct EmbeddingParams {
  const uint16_t* table = nullptr;  // [vocabulary, width], where `quantised` has no data
  QuantisedWeight quantised;        // [vocabulary, width]
  const int32_t* tokens = nullptr;
  float* out = nullptr;
  int rows = 0;
  int width = 0;  // a multiple of 8
  int first_token = 0;
  int vocabulary = 0;
  float scale = 1.0f;
  bool accumulate = false;
  bool half = false;  // the table is, or is rounded to, float16
};

runtime::Error LaunchEmbedding(runtime::Runtime& runtime, runtime::StreamId stream,
                               const EmbeddingParams& params);

}  // namespace quire::kernels::cuda
