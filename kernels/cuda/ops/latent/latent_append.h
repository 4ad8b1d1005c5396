// Latents into their pages, and queries as the next product reads them.
#pragma once

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/kv_layout.h"

namespace quire::kernels::cuda {

// A latent's first `rank` elements are normalised (RMS over them, times `norm`), its last rope_dim
// turn, and it is stored in its page as kernels/kv_layout.h has it: rounded once, or codes and a
// scale for the token. Of each head of a query the last rope_dim elements turn; all of it is
// rounded to bfloat16 or float16. Pairs that turn together are (i, i + rope_dim / 2), or with
// `pairs` neighbours, which become those. Angles as in RopeAppendParams, of rope_dim elements.
struct LatentAppendParams {
  const float* queries = nullptr;  // [tokens][queries_stride], heads · query_dim of them
  int queries_stride = 0;          // elements, a multiple of 4
  uint16_t* q = nullptr;           // [tokens][heads · query_dim]
  const float* latents = nullptr;  // [tokens][latents_stride], rank + rope_dim of them
  int latents_stride = 0;          // elements, a multiple of 4
  int tokens = 0;
  const int32_t* positions = nullptr;  // [tokens]
  const int32_t* pages = nullptr;      // [tokens] the page of each token's position
  const float* angles = nullptr;
  const float* norm = nullptr;  // [rank]
  float epsilon = 1e-6f;
  bool pairs = false;
  bool half = false;  // q is float16, of at most ±65,504
  int heads = 0;
  int query_dim = 0;  // a multiple of 4
  int rank = 0;       // a multiple of 8
  int rope_dim = 0;   // a multiple of 8, at most query_dim
  // Elements from `rows` on: page · page_stride + token · token_stride.
  KvType type = KvType::kBF16;  // or kF16, kFp8
  void* rows = nullptr;
  int64_t page_stride = 0;
  int token_stride = 0;     // a multiple of 8
  float* scales = nullptr;  // of fp8: page · scale_page_stride + token
  int64_t scale_page_stride = 0;
  int block_shift = 4;
};

// The widest latent: rank + rope_dim.
inline constexpr int kMostLatentDim = 576;

runtime::Error LaunchLatentAppend(runtime::Runtime& runtime, runtime::StreamId stream,
                                  const LatentAppendParams& params);

}  // namespace quire::kernels::cuda
