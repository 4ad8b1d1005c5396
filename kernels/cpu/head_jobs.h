// The jobs that work on the heads of q, k and v: their place in pages, norms and rotation; and the
// gate of a layer's own input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/head_rules.h"
#include "kernels/kv_layout.h"
#include "kernels/step_batch.h"
#include "kernels/step_program.h"

namespace quire::kernels::cpu {

// The place of one layer's keys and values in a page. Keys are [head][token / 16][dim][16], values
// are [head][token][dim padded to 16].
struct LayerPages {
  std::byte* pool = nullptr;
  int64_t page_bytes = 0;
  int64_t key_offset = 0;  // of the layer's keys within a page
  int64_t value_offset = 0;
  int64_t key_scale_offset = 0;  // fp8: float32 [head][token]
  int64_t value_scale_offset = 0;
  int64_t head_elements = 0;  // of keys, and of values, of one head in one page
  int block_size = 16;
  int group = 0;  // which block table of a row
  KvType type = KvType::kF32;
};

// gate[t] = gelu_tanh(gate[t]) · with[t] · scale.
struct SliceGateJob {
  float* gate = nullptr;
  int64_t gate_stride = 0;
  const float* with = nullptr;
  int64_t with_stride = 0;
  int width = 0;
  float scale = 1.0f;
};

// out = act(in); gated, `in` has twice the width.
struct ActivateJob {
  LinearOp::Activation activation = LinearOp::Activation::kRelu;
  int width = 0;
  const float* in = nullptr;
  int64_t in_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
};

struct SquaresJob {
  const float* qkv = nullptr;
  int64_t stride = 0;
  int q_width = 0;
  int k_width = 0;  // 0: not counted here
  float* out = nullptr;
  int64_t out_stride = 0;
};

struct RopeJob {
  float* qkv = nullptr;
  int64_t stride = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  HeadNorm norm = HeadNorm::kRms;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  const float* squares = nullptr;  // kWhole: [tokens][2], of all ranks
  int64_t squares_stride = 0;
  float q_width = 0.0f;  // kWhole: of all ranks
  float k_width = 0.0f;
  bool v_norm = false;
  QueryGrowth growth;
  float epsilon = 0.0f;
  float weight_offset = 0.0f;
  int rotary_dim = 0;             // 0: no rotation
  const float* angles = nullptr;  // [tokens][cos of rotary_dim / 2, sin of rotary_dim / 2]
  LayerPages pages;
  std::span<const BatchRow> rows;
};

}  // namespace quire::kernels::cpu
