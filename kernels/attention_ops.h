// The ops of attention over pages of keys and values, and the gate of a layer's own input.
#pragma once

#include "kernels/head_rules.h"
#include "kernels/program_ids.h"

namespace quire::kernels {

// Sums for HeadNorm::kWhole: squares[t] = Σ q² and Σ k² of this rank's heads. Where several ranks
// hold the same heads of keys, one of them counts these.
struct HeadSquaresOp {
  BufferId qkv = kNoId;
  BufferId out = kNoId;  // [tokens, 2]
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  bool keys = true;
};

// Takes qkv = [tokens, (heads + 2 kv_heads) * head_dim] with heads in the order q, k, v. Normalises
// q and k when the weights are given, rotates both in place, and appends k and v to the layer's
// page. Where kv_heads is 0, qkv is q alone and nothing is appended: another layer's keys are read.
struct RopeAppendOp {
  BufferId qkv = kNoId;
  int layer = 0;  // whose pages are written
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  HeadNorm norm = HeadNorm::kRms;
  WeightId q_norm = kNoId;
  WeightId k_norm = kNoId;
  BufferId squares = kNoId;  // kWhole: [tokens, 2], of all ranks
  int norm_heads = 0;        // kWhole: query heads of all ranks
  int norm_kv_heads = 0;
  bool v_norm = false;  // RMS of each head of v, without weights
  float norm_epsilon = 1e-6f;
  float norm_weight_offset = 0.0f;
  int rope = kNoId;  // index into StepProgram::ropes; kNoId leaves positions out
  QueryGrowth growth;
};

// out[t] = softmax(scale · q[t] · Kᵀ, causal, within the layer's window) · V, read through the
// block table. A head's sink is one more score, unscaled, of a key without a value.
struct AttentionOp {
  BufferId qkv = kNoId;  // only the q part is read, and it may be all
  BufferId out = kNoId;  // [tokens, heads * head_dim]
  int layer = 0;         // whose pages are read
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 1.0f;
  int window = 0;  // 0 is full attention
  float softcap = 0.0f;
  WeightId sinks = kNoId;  // [1, heads]
};

// gate[t] = gelu_tanh(gate[t]) · with[t][first …] · scale, over the width of gate.
struct SliceGateOp {
  BufferId gate = kNoId;
  BufferId with = kNoId;
  int first = 0;
  float scale = 1.0f;
};

}  // namespace quire::kernels
