// The ops of recurrent layers: a causal convolution, a linear recurrence, and gates.
//
// Values; part of a step program. What they keep from token to token is in the layer's state
// (state_layout.h). Each computes token by token, in prefill as in decode, so the bits of a token
// follow from the tokens before it alone.
#pragma once

#include <cstdint>

#include "kernels/program_ids.h"

namespace quire::kernels {

// y[t, c] = bias[c] + Σ_j weight[j, c] · x[t − taps + 1 + j, c] for every channel: x is `in`, and
// out = y or SiLU(y). Gated (LFM2): `in` holds B, C and x beside each other, B · x is convolved,
// and out = C · y.
struct CausalConvOp {
  int layer = 0;            // of the recurrent layers
  WeightId weight = kNoId;  // [taps · channels], a tap's channels beside each other
  WeightId bias = kNoId;    // [channels]
  bool silu = false;
  bool gated = false;
  BufferId in = kNoId;   // [tokens, channels], gated 3 · channels
  BufferId out = kNoId;  // [tokens, channels]
};

// A matrix S of each value head, with the q and k of its key head (value_heads / key_heads share
// one) and its own v; g and b are the head's own numbers of a token:
//   S ← g S;  S ← S + k ⊗ b (v − kᵀS);  out = qᵀS       Gated DeltaNet (Yang et al., 2025)
//   S ← g S;  S ← S + k ⊗ b v;          out = qᵀS + d v  Mamba-2 (Dao and Gu, 2024)
// There are g = e^{decay · softplus(a + bias)}, and b = σ(beta) in the first, where q and k are
// divided by their lengths and q also by √key_dim; b = softplus(a + bias) in the second.
struct RecurrenceOp {
  enum class Kind : uint8_t { kGatedDelta, kMamba2 };
  Kind kind = Kind::kGatedDelta;
  int layer = 0;  // of the recurrent layers
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  // Those that share a key head are neighbours, or tiled: their numbers differ by key_heads.
  bool tiled = false;
  WeightId decay = kNoId;  // [value_heads], below 0
  WeightId bias = kNoId;   // [value_heads]
  WeightId skip = kNoId;   // [value_heads]: d
  // [tokens, 2 key_heads · key_dim + value_heads · value_dim]: q, k, v, or v, k, q in Mamba-2. The
  // first writes the lengths' quotients back.
  BufferId in = kNoId;
  BufferId gates = kNoId;    // [tokens, 2 value_heads]: beta, a; Mamba-2 [tokens, value_heads]: a
  BufferId factors = kNoId;  // [tokens, 2 value_heads]: g, b
  BufferId out = kNoId;      // [tokens, value_heads · value_dim]
};

// RMS norms of neighbouring groups of the width, times weight, times SiLU(gate); or, with
// gate_first, of in · SiLU(gate).
struct GatedNormOp {
  WeightId weight = kNoId;  // [group], or [width]
  int group = 0;
  float epsilon = 1e-6f;
  bool gate_first = false;
  BufferId in = kNoId;
  BufferId gate = kNoId;
  BufferId out = kNoId;
};

// out = in · σ(gate).
struct GateOp {
  BufferId in = kNoId;
  BufferId gate = kNoId;
  BufferId out = kNoId;
};

}  // namespace quire::kernels
