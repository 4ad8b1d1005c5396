// Attention over paged latents: a token's latent is the key of all heads, and its first `rank`
// elements are the value of all. The same arithmetic in prefill and decode.
//
// out[t, h] = softmax(scale · q[t, h] · Lᵀ, causal) · the first rank columns of L. A tile's rows
// are its queries with all of their heads; a block takes 16 or 64 of them, which read each tile of
// 64 latents once, from one place in shared memory, as keys and as values. Tiles, spans of 512
// keys, their merge and the order of every sum follow ops/attention, so a row's bits depend on its
// position and the latents alone, and on no form of block.
//
// Products are in bfloat16, or float16 for pages of float16; a token's scale of fp8 multiplies its
// scores and its weight.
#pragma once

#include "kernels/cuda/ops/attention/attention.h"

namespace quire::kernels::cuda {

// Pages, tables, sequences and tiles as there. `keys` and `key_scales` point to latents and their
// scales, `head_dim` is rank + rope_dim; `kv_heads`, `window` and `softcap` are left out.
struct LatentAttentionParams : AttentionParams {
  int rank = 0;
  bool half = false;     // out is float16, else bfloat16
  int tile_queries = 1;  // filled in by LaunchLatentAttention
};

// How a step's tiles are made: `tile_queries` queries of a sequence each. `apart`: each span of
// keys has a block of its own, and the last one merges them.
struct LatentPlan {
  int tile_count = 0;
  int max_spans = 1;
  int tile_queries = 1;
  bool apart = true;
  size_t most_workspace_bytes = kMostAttentionWorkspaceBytes;
};

// Queries that a tile takes: as many as their heads fill its rows with, at least one.
constexpr int LatentTileQueries(int rows, int heads) { return heads < rows ? rows / heads : 1; }

// Of AttentionParams::workspace and counters, the same on every device.
size_t LatentWorkspaceBytes(const LatentPlan& plan, int heads, int rank, int rope_dim);
size_t LatentCounters(const LatentPlan& plan, int heads);

// rank and rank + rope_dim: multiples of 8, up to 512 and 576.
runtime::Error LaunchLatentAttention(runtime::Runtime& runtime, runtime::StreamId stream,
                                     const LatentPlan& plan, LatentAttentionParams params);

}  // namespace quire::kernels::cuda
