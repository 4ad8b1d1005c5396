// The ops of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) in the form that reads the
// cache as it is: a token's latent is the key of all heads, and its first part the value of all.
//
// A latent has `rank` elements that are normalised and `rope_dim` behind them that turn; so has a
// query once head_linear has multiplied the part of each head that does not turn by the head's
// matrix of keys. Attention sums latents, and another head_linear turns each head's sum into its
// result. Prefill and decode are this one form.
#pragma once

#include <vector>

#include "kernels/program_ids.h"

namespace quire::kernels {

// Takes queries = [tokens, heads * query_dim] and latents = [tokens, rank + rope_dim]. Normalises
// the first `rank` of a latent (RMS), rotates the last rope_dim of it and of each query head, both
// in place, and appends the latent to the layer's page.
struct LatentAppendOp {
  BufferId queries = kNoId;
  BufferId latents = kNoId;
  int layer = 0;
  int heads = 0;
  int query_dim = 0;
  int rank = 0;
  int rope_dim = 0;
  WeightId norm = kNoId;  // [1, rank]
  float norm_epsilon = 1e-6f;
  int rope = kNoId;
  bool pairs = false;  // elements 2 i and 2 i + 1 turn together, and become i and i + rope_dim / 2
};

// A product of its own for each head: out[t][h] = W_h · the first elements of in[t][h], and behind
// it the elements that W_h has no columns for, as they are.
struct HeadLinearOp {
  std::vector<WeightId> weights;  // by head, all of one shape
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// out[t][h] = softmax(scale · queries[t][h] · Lᵀ, causal) · the first `rank` columns of L, which
// are the latents, read through the block table.
struct LatentAttentionOp {
  BufferId queries = kNoId;  // [tokens, heads * (rank + rope_dim)]
  BufferId out = kNoId;      // [tokens, heads * rank]
  int layer = 0;
  int heads = 0;
  int rank = 0;
  int rope_dim = 0;
  float scale = 1.0f;
};

}  // namespace quire::kernels
