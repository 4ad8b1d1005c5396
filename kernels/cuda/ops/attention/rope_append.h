// Norm and rotation of the heads of q and k, and k and v into their pages: one block per token.
#pragma once

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/head_rules.h"
#include "kernels/kv_layout.h"

namespace quire::kernels::cuda {

// qkv: float32 [tokens][stride], heads in the order q, k, v. q is normalised (as `norm` says, when
// q_norm is given), rotated, multiplied by its growth and rounded to bfloat16. k likewise, without
// growth, goes into its page; v goes into its page as it is, or with `v_norm` normalised without a
// weight. Pages get both rounded once to their type; those of fp8 codes and scales as
// kernels/kv_fp8.h has them. Angles: for position p, cosines at [2 · half · p + i] and sines at [2
// · half · p + half + i] of the pair (i, i + half), half = rotary_dim / 2; elements behind
// rotary_dim stay.
struct RopeAppendParams {
  const float* qkv = nullptr;
  uint16_t* q = nullptr;  // [tokens][heads · head_dim]
  int stride = 0;         // elements, a multiple of 8
  int tokens = 0;
  const int32_t* positions = nullptr;  // [tokens]
  const int32_t* pages = nullptr;      // [tokens] the page of each token's position
  const float* angles = nullptr;
  int rotary_dim = 0;  // a multiple of 8, or 0: no rotation
  HeadNorm norm = HeadNorm::kRms;
  const float* q_norm = nullptr;  // [head_dim], else [heads · head_dim]; or null
  const float* k_norm = nullptr;
  bool v_norm = false;
  // kWhole: [tokens][squares_stride], Σ q² and Σ k² over q_elements and k_elements.
  const float* squares = nullptr;
  int squares_stride = 0;
  int q_elements = 0;
  int k_elements = 0;
  QueryGrowth growth;
  float epsilon = 1e-6f;
  float weight_offset = 0.0f;
  // As in AttentionParams.
  KvType type = KvType::kBF16;
  void* keys = nullptr;
  void* values = nullptr;
  int64_t page_stride = 0;
  int64_t head_stride = 0;
  int token_stride = 0;
  float* key_scales = nullptr;
  float* value_scales = nullptr;
  int64_t scale_page_stride = 0;
  int block_shift = 4;
  int heads = 0;
  int kv_heads = 0;  // 0: queries alone, of a layer that reads another's keys
  int head_dim = 0;  // filled in by LaunchRopeAppend
};

// head_dim: a multiple of 8 up to 512.
runtime::Error LaunchRopeAppend(runtime::Runtime& runtime, runtime::StreamId stream, int head_dim,
                                RopeAppendParams params);

}  // namespace quire::kernels::cuda
