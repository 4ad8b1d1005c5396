// Attention over paged keys and values, the same arithmetic in prefill and decode.
//
// out[t, h] = softmax(scale · q[t, h] · Kᵀ, causal, within the window) · V. Queries of the heads
// that share a KV head are packed into the 16 rows of the tensor core's tile. Keys are taken in
// tiles of 64 and spans of 512, aligned to position 0; a span has its own maximum, sum and output,
// and spans are merged in ascending order. What a row computes depends on its position and the keys
// alone: prefill of many tokens, decode of one, and any cut of a prompt give the same bits.
//
// Keys outside every query's window, and those after the last query, are not read: their slots may
// hold NaN and their pages may not exist.
//
// Products are in bfloat16, whatever the pages hold: fp8's codes are bfloat16 numbers, and their
// scales are multiplied in float32, a key's with its scores, a value's with its weights. Pages of
// float16 have products of float16, for which queries are rounded, at most to ±65,504.
#pragma once

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/kv_layout.h"

namespace quire::kernels::cuda {

// The tokens of one sequence in the step: consecutive in q and out and in position.
struct AttentionSequence {
  int first_token = 0;     // row of q and out
  int token_count = 0;     // q_len
  int first_position = 0;  // of its first token; keys up to each token's own are in the pages
};

// Up to `rows / group` queries of one sequence: the work of one block and KV head.
struct AttentionTile {
  int sequence = 0;
  int first_query = 0;  // of the sequence's tokens
};

inline constexpr int kMostTileRows = 64;

// Wider heads have no registers left for sinks.
inline constexpr int kMostSinkHeadDim = 128;

struct AttentionParams {
  const uint16_t* q = nullptr;  // bfloat16 [tokens][q_stride], heads · head_dim of them
  int q_stride = 0;             // elements
  uint16_t* out = nullptr;      // bfloat16 [tokens][heads · head_dim]
  const AttentionSequence* sequences = nullptr;
  const AttentionTile* tiles = nullptr;
  const int32_t* block_tables = nullptr;  // [sequence][block_table_stride] page ids
  int block_table_stride = 0;
  // Elements from `keys` (`values`) to a page's, KV head's and token's first element:
  // page · page_stride + head · head_stride + token · token_stride.
  KvType type = KvType::kBF16;  // or kF16, kFp8
  const void* keys = nullptr;
  const void* values = nullptr;
  int64_t page_stride = 0;
  int64_t head_stride = 0;
  int token_stride = 0;  // a multiple of 8, of 16 for fp8; 0: head_dim
  // Of fp8, float32: page · scale_page_stride + (head << block_shift) + token.
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;
  int64_t scale_page_stride = 0;
  int block_shift = 4;  // log2 of the tokens of a page: 4, 5 or 6
  int heads = 0;
  int kv_heads = 0;
  int window = 0;  // 0 is full attention
  float scale = 1.0f;
  float softcap = 0.0f;
  // [heads] or null: one more score of each head, unscaled, of a key without a value. Spans are
  // merged into it. For head dimensions up to kMostSinkHeadDim.
  const float* sinks = nullptr;
  // Filled in by LaunchAttention.
  int head_dim = 0;
  bool apart = false;  // each span of keys has a block of its own
  // AttentionWorkspaceBytes of memory; one word per tile and KV head, zero before the first launch
  // and after each.
  float* workspace = nullptr;
  uint32_t* counters = nullptr;
};

// The most that waits in memory for the merge of spans: more tiles are run by several launches, of
// one tile at least.
inline constexpr size_t kMostAttentionWorkspaceBytes = size_t{256} << 20;

// How a step's tiles are made: 16 rows a block for decode, 64 for prefill. `tile_queries` queries
// of a sequence make one AttentionTile.
struct AttentionPlan {
  int tile_count = 0;
  int max_spans = 1;       // of any sequence: the longest context in units of 512, rounded up
  int rows_per_tile = 16;  // 16 or 64
  size_t most_workspace_bytes = kMostAttentionWorkspaceBytes;

  int TileQueries(int heads, int kv_heads) const { return rows_per_tile / (heads / kv_heads); }
};

size_t AttentionWorkspaceBytes(const AttentionPlan& plan, int kv_heads, int head_dim);

// head_dim: a multiple of 8 up to 512; shared memory and products are sized for the next of 64,
// 128, 256 and 512, memory and traffic for its own. At most 16 heads share a KV head.
runtime::Error LaunchAttention(runtime::Runtime& runtime, runtime::StreamId stream, int head_dim,
                               const AttentionPlan& plan, AttentionParams params);

}  // namespace quire::kernels::cuda
