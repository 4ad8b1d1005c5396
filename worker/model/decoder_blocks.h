// The program that decoder families share, and its blocks: attention with rotary positions, the
// gated MLP, the head.
//
// Pure functions over a ProgramBuilder; each appends its ops and weights in the order in which they
// run.
#pragma once

#include "worker/model/program_builder.h"
#include "worker/model/recurrent_blocks.h"

namespace quire::model {

// The same of latent attention alone.
struct LatentBuffers {
  kernels::BufferId query = kernels::kNoId;  // between the two products that make queries
  kernels::BufferId query_normed = kernels::kNoId;
  kernels::BufferId latents = kernels::kNoId;
  kernels::BufferId absorbed = kernels::kNoId;  // queries of latents, heads * (rank + rope_dim)
  kernels::BufferId summed = kernels::kNoId;    // heads * rank
};

// The activations that flow through the layers, made once per program.
struct DecoderBuffers {
  kernels::BufferId hidden = kernels::kNoId;    // the residual stream
  kernels::BufferId normed = kernels::kNoId;    // what blocks read: hidden, after a norm
  kernels::BufferId qkv = kernels::kNoId;       // of latent attention: queries alone
  kernels::BufferId attended = kernels::kNoId;  // the results of all heads
  kernels::BufferId gate = kernels::kNoId;      // of attention, as wide
  LatentBuffers latent;
  kernels::BufferId inner = kernels::kNoId;   // intermediate
  kernels::BufferId shared = kernels::kNoId;  // the same of a shared expert without a gate
  RecurrentBuffers recurrent;
  kernels::BufferId branch =
      kernels::kNoId;  // a block's result that is normalised before it is added
};

// hidden = embedding[token] * scale.
kernels::WeightId AddEmbedding(ProgramBuilder& builder, const DecoderBuffers& buffers, float scale);

struct NormBlock {
  Part part = Part::kFinalNorm;
  int layer = kNoLayer;
  kernels::BufferId in = kernels::kNoId;
  kernels::BufferId out = kernels::kNoId;
  bool accumulate = false;
  float scale = 1.0f;
};

// out (+)= norm of `in` with the weights of `part`, then times the scale.
void AddNorm(ProgramBuilder& builder, const NormBlock& block);

struct AttentionBlock {
  int layer = 0;
  int rope = kernels::kNoId;
  bool head_norms = false;  // norms of q and k before the rotation
  bool sinks = false;
  kernels::BufferId out = kernels::kNoId;
  bool accumulate = true;
  kernels::HeadNorm head_norm = kernels::HeadNorm::kRms;
};

// out (+)= output projection of attention over `normed`.
void AddAttention(ProgramBuilder& builder, const DecoderBuffers& buffers,
                  const AttentionBlock& block);

// out (+)= down(act(gate(normed)) * up(normed)), or down(act(up(normed))) where none is gated.
void AddMlp(ProgramBuilder& builder, const DecoderBuffers& buffers, int layer,
            kernels::BufferId out, bool accumulate);

// Gives `moe` the weights of this rank's experts, in their order.
void TakeExperts(ProgramBuilder& builder, int layer, kernels::MoeOp& moe);

// out (+)= the experts that a token's router chooses, and a shared one, over `normed`.
void AddExperts(ProgramBuilder& builder, const DecoderBuffers& buffers, int layer,
                kernels::BufferId out, bool accumulate);

// Logits of the final norm's result, and the sample. `embedding` is the head when the model ties
// them.
void AddLogits(ProgramBuilder& builder, kernels::BufferId in, kernels::WeightId embedding);

// The final norm of the sampled rows of `hidden`, their logits, and the sample.
void AddHead(ProgramBuilder& builder, kernels::BufferId hidden, kernels::WeightId embedding);

// How a decoder differs from Llama's.
struct DecoderForm {
  bool head_norms = false;  // norms of q and k before the rotation
  kernels::HeadNorm head_norm = kernels::HeadNorm::kRms;
  bool pre_norms = true;           // a norm before each block
  bool post_norms = false;         // a norm of each block's result before it is added
  bool scaled_embeddings = false;  // by the root of the width
  bool sliding_rope = false;       // layers with a window have their own rope
  bool sinks = false;              // each head has a score of its own without a value
  bool parallel = false;           // attention and mlp read one norm's result, and both are added
};

// The ropes of a decoder's layers; those with a window may have their own.
struct DecoderRopes {
  int full = kernels::kNoId;
  int sliding = kernels::kNoId;
};
DecoderRopes AddRopes(ProgramBuilder& builder, const DecoderForm& form);

// hidden += attention(norm(hidden)); hidden += mlp(norm(hidden)), as the form has them.
void AddLayer(ProgramBuilder& builder, const DecoderForm& form, const DecoderBuffers& buffers,
              const DecoderRopes& ropes, int layer);

DecoderBuffers MakeBuffers(ProgramBuilder& builder, const DecoderForm& form);

// The whole program: embeddings, layers, the head, and the features that the rank names. What
// layers add has the configuration's residual_scale.
void WriteDecoder(ProgramBuilder& builder, const DecoderForm& form);

}  // namespace quire::model
