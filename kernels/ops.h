// The shapes that each op of a step program requires, declared once and checked before a backend
// loads it.
//
// With T tokens and S sampled rows in a step, n ids of this rank in logits of v columns, and R = T,
// or S for a buffer of sampled rows (input and output of an op have the same):
//
//   embed        table [n, w] or positions [places, w], or both → out [T, w]
//   norm         in [R, w], weight and bias [w / pieces] → out [R, w]
//   slice_gate   gate [T, w], with [T, first + w or more] → gate
//   linear       in [R, k], weight [m, k], bias [m] → out [R, m], gated [R, m / 2]
//   rope_append  qkv [T, (heads + 2 kv_heads) · head_dim], norms [head_dim] or [heads · head_dim],
//                squares [T, 2] → qkv, layer's pages
//   attention    qkv as above, the layer's pages → out [T, heads · head_dim]
//   gather_rows  in [T, w] → out [S, w]
//   logits       in [S, k], head [n, k], bias [n] → out [S, v]
//   sample       logits [S, v] → StepBatch::sample_outputs
//   all_reduce   buffer [R, w], in place
//   head_squares qkv as above → out [T, 2]
//   moe          in [T, w], router [experts, w], each expert [2 i, w] and [w, i] → out [T, w]
//
//   latent_append     queries [T, heads · query_dim], latents [T, rank + rope_dim], norm [rank]
//                     → queries, latents, layer's pages
//   head_linear       in [R, heads · (k + r)], weight of each head [m, k] → out [R, heads · (m +
//   r)] latent_attention  queries [T, heads · (rank + rope_dim)], the layer's pages
//                     → out [T, heads · rank]
//   causal_conv  in [T, c], gated [T, 3 c], weight [taps · c], bias [c], state → out [T, c]
//   recurrence   in [T, 2 keys + values], gates, state → factors, out [T, values]
//   gated_norm   in and gate [R, w], weight [group] or [w] → out [R, w]
//   gate         in and gate [R, w] → out [R, w]
//   lora         in [T, k], each slice's target of width w: A [r, k], B [w, r]
//                → out [T, column + w or more]
//   activate     in [R, w], gated [R, 2 w] → out [R, w]
#pragma once

#include <string>

#include "kernels/step_program.h"

namespace quire::kernels {

// "embed", "norm", … as above.
const char* OpName(const Op& op);

// Empty when every op's ids exist and its shapes agree; otherwise the first op that is wrong, and
// how.
std::string CheckProgram(const StepProgram& program);

}  // namespace quire::kernels
