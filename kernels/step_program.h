// The step program: a model as a flat list of semantic operations over named buffers.
//
// A model file writes it once from its configuration; a backend lowers it once (packs weights,
// plans buffers, may fuse neighbours) and runs it for every step. Activations are defined as
// [tokens, width] float32; a backend may hold them in another form if its numerics class permits
// it.
//
// Invariants:
// 1. Ops run in list order. A buffer is written before it is read within one step.
// 2. `kNoId` means "absent".
// 3. An op here has a clear CPU reference in kernels/cpu and a parity test.
// 4. With several tensor-parallel ranks each has its own program: the same ops in the same order,
//    over its part of the heads, of the inner width and of the vocabulary. The sums of all_reduce,
//    and everything that is computed from them alone, are equal on all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kernels/activation.h"
#include "kernels/attention_ops.h"
#include "kernels/feature_ops.h"
#include "kernels/kv_layout.h"
#include "kernels/latent_ops.h"
#include "kernels/lora_ops.h"
#include "kernels/moe_op.h"
#include "kernels/program_ids.h"
#include "kernels/recurrent_ops.h"
#include "kernels/tensor.h"
#include "kernels/vocabulary_slice.h"

namespace quire::kernels {

// One tensor of the model. `parts` are stacked along rows (separate q, k and v matrices, or gate
// and up, of possibly different types, that one product computes).
struct Weight {
  std::string name;  // of the first part, for messages
  std::vector<WeightSource> parts;
  int64_t rows = 0;  // sum over parts
  int64_t cols = 0;
};

struct Buffer {
  std::string name;
  int width = 0;
  bool sampled_rows_only = false;  // [sampled rows, width] instead of [tokens, width]
};

// out[t] = table[token[t]] * scale + positions[position[t] + position_offset]; one of the two may
// be absent. The table holds this rank's ids (VocabularyOf): the row of any other id is zero.
struct EmbedOp {
  WeightId table = kNoId;
  float scale = 1.0f;
  WeightId positions = kNoId;
  int position_offset = 0;
  BufferId out = kNoId;
};

// y = norm(in) * (weight + weight_offset) + bias, over the width or over each of `pieces` equal
// parts of it, all with the same weights; then out = y · scale, or out = (out + y) · scale.
struct NormOp {
  enum class Kind : uint8_t { kRms, kLayer };
  Kind kind = Kind::kRms;
  WeightId weight = kNoId;
  WeightId bias = kNoId;
  float epsilon = 1e-6f;
  float weight_offset = 0.0f;  // 1 for Gemma as stored by Hugging Face, 0 elsewhere and in GGUF
  bool accumulate = false;
  int pieces = 1;
  float scale = 1.0f;
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// y = in · weightᵀ + bias, then the activation, then the scale; then out = y, or out += y.
struct LinearOp {
  using Activation = kernels::Activation;
  static constexpr bool IsGated(Activation activation) { return kernels::IsGated(activation); }
  WeightId weight = kNoId;
  WeightId bias = kNoId;  // [1, rows]
  Activation activation = Activation::kNone;
  float scale = 1.0f;  // 1 where the activation is gated
  bool accumulate = false;
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// A product's activation, apart from it where an adapter adds to the product: out = act(in); a
// gated one takes `in` = [gate, up] of twice the width.
struct ActivateOp {
  LinearOp::Activation activation = LinearOp::Activation::kRelu;
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// out = the rows of `in` whose logits are needed in this step.
struct GatherRowsOp {
  BufferId in = kNoId;
  BufferId out = kNoId;  // sampled_rows_only
};

// out = (in · headᵀ) * scale, soft-capped when softcap > 0; −∞ in the columns of padding.
struct LogitsOp {
  WeightId head = kNoId;  // [ids of this rank, width]
  WeightId bias = kNoId;
  float scale = 1.0f;
  float softcap = 0.0f;
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// Turns logits into one token per sampled row (kernels/sampling): the same one on all ranks, and
// the same as a single rank would find in all the logits.
struct SampleOp {
  BufferId logits = kNoId;
};

// Sums a buffer over the tensor-parallel ranks, in the order of ranks; nothing with one rank.
struct AllReduceOp {
  BufferId buffer = kNoId;
};

using Op = std::variant<EmbedOp, NormOp, LinearOp, RopeAppendOp, AttentionOp, GatherRowsOp,
                        LogitsOp, SampleOp, AllReduceOp, MoeOp, HeadSquaresOp, SliceGateOp,
                        LatentAppendOp, HeadLinearOp, LatentAttentionOp, CausalConvOp, RecurrenceOp,
                        GatedNormOp, GateOp, LoraOp, ActivateOp, CopyOp, InputOp>;

// Rotation angles: position p turns pair i by p * inverse_frequency[i]; cos and sin are multiplied
// by attention_factor. Pairs are (i, i + rotary_dim / 2) ("NeoX" order). rotary_dim ≤ head_dim.
struct Rope {
  int rotary_dim = 0;
  std::vector<double> inverse_frequency;  // rotary_dim / 2
  double attention_factor = 1.0;
};

struct StepProgram {
  std::string family;  // "llama", "gemma3", …
  int rank = 0;
  int ranks = 1;
  int vocab_size = 0;  // of all ranks
  int hidden_size = 0;
  int max_positions = 0;  // longest context
  std::vector<Weight> weights;
  bool dequantize_weights = false;  // expand quantised ones at load, where the backend can choose
  // Round the inputs of weights as a checkpoint asks (WeightSource::rounding), where a backend
  // decides that by program. A CPU's class of numerics does so by itself.
  bool round_activations = false;
  // Keep what makes greedy rows of the head cheaper beside it, where the backend can.
  bool screen_head = true;
  std::vector<Buffer> buffers;
  std::vector<Rope> ropes;
  // By layer: 0 is full, kNoKeys: it has no attention, or reads another's keys.
  std::vector<int> layer_windows;
  std::vector<StateShape> states;        // by recurrent layer
  std::vector<LoraTarget> lora_targets;  // what adapters may change; empty: they have no ops here
  int heads = 0;                         // of this rank
  int kv_heads = 0;                      // of this rank
  int head_dim = 0;
  KvHeads full;  // of layers with full attention, where those with a window have other heads
  bool latents = false;       // pages hold latents of head_dim elements; kv_heads is 1
  BufferId features = kNoId;  // of all tokens: what LoadedProgram::Features shows
  int input_width = 0;        // of StepBatch::inputs; 0: no op reads them
  std::vector<Op> ops;
};

// What the pages of a program hold.
inline KvShape KvShapeOf(const StepProgram& program, int block_size, KvType type) {
  return {block_size, program.kv_heads, program.head_dim, type, program.full, program.latents};
}

inline VocabularySlice VocabularyOf(const StepProgram& program) {
  return VocabularyOf(program.vocab_size, program.rank, program.ranks);
}

}  // namespace quire::kernels
