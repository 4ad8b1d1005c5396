// OPT: learned positions, LayerNorm before each block (after it in the 350M model), biases, a ReLU
// MLP, and embeddings that may be narrower than the layers.
#include "worker/model/family.h"

namespace quire::model {
namespace {

using kernels::BufferId;
using kernels::WeightId;

// The table of positions begins with two rows that no token uses.
constexpr int kPositionOffset = 2;

WeightId AddEmbeddings(ProgramBuilder& builder, BufferId hidden) {
  const load::ModelConfig& config = builder.config();
  kernels::EmbedOp embed;
  embed.table = builder.Matrix({{Part::kEmbedding, config.vocab_size, builder.shard().vocabulary}},
                               config.embedding_size);
  const auto positions = [&builder, &config] {
    return builder.Matrix({{Part::kPositions, int64_t{config.max_positions} + kPositionOffset}},
                          config.hidden_size);
  };
  if (config.embedding_size == config.hidden_size) {
    // The ranks' embeddings are summed: the first alone adds positions.
    if (builder.shard().first()) embed.positions = positions();
    embed.position_offset = kPositionOffset;
    embed.out = hidden;
    builder.Add(embed);
    builder.AddSum(hidden);
    return embed.table;
  }
  embed.out = builder.Buffer("embedded", config.embedding_size);
  builder.Add(embed);
  builder.AddSum(embed.out);
  kernels::EmbedOp place;  // positions only
  place.positions = positions();
  place.position_offset = kPositionOffset;
  place.out = hidden;
  builder.Add(place);
  kernels::LinearOp project;
  project.weight = builder.Matrix({{Part::kProjectIn, config.hidden_size}}, config.embedding_size);
  project.accumulate = true;
  project.in = embed.out;
  project.out = hidden;
  builder.Add(project);
  return embed.table;
}

// Norms before the blocks leave the residual stream alone; norms after them replace it, so that it
// moves to the other buffer and back within a layer.
void AddLayer(ProgramBuilder& builder, const DecoderBuffers& buffers, int layer) {
  const bool before = builder.config().norm_before;
  DecoderBuffers view = buffers;
  if (before) {
    AddNorm(builder, {Part::kAttentionNorm, layer, buffers.hidden, buffers.normed});
  } else {
    view.normed = buffers.hidden;  // attention reads the stream itself
  }
  AddAttention(builder, view,
               {layer, kernels::kNoId, /*head_norms=*/false, /*sinks=*/false, buffers.hidden,
                /*accumulate=*/true});
  if (before) {
    AddNorm(builder, {Part::kMlpNorm, layer, buffers.hidden, buffers.normed});
    AddMlp(builder, buffers, layer, buffers.hidden, /*accumulate=*/true);
  } else {
    AddNorm(builder, {Part::kAttentionNorm, layer, buffers.hidden, buffers.normed});
    AddMlp(builder, buffers, layer, buffers.normed, /*accumulate=*/true);
    AddNorm(builder, {Part::kMlpNorm, layer, buffers.normed, buffers.hidden});
  }
}

void WriteOpt(ProgramBuilder& builder, const DecoderForm& form) {
  const DecoderBuffers buffers = MakeBuffers(builder, form);
  const WeightId embedding = AddEmbeddings(builder, buffers.hidden);
  const load::ModelConfig& config = builder.config();
  for (int layer = 0; layer < config.layers; ++layer) {
    if (!config.Skips(layer)) AddLayer(builder, buffers, layer);
  }
  BufferId last = builder.Buffer("last", config.hidden_size, /*sampled_rows_only=*/true);
  builder.Add(kernels::GatherRowsOp{buffers.hidden, last});
  if (config.final_norm) {
    const BufferId normed = builder.Buffer("last_normed", config.hidden_size, true);
    AddNorm(builder, {Part::kFinalNorm, kNoLayer, last, normed});
    last = normed;
  }
  if (config.embedding_size != config.hidden_size) {
    kernels::LinearOp project;
    project.weight =
        builder.Matrix({{Part::kProjectOut, config.embedding_size}}, config.hidden_size);
    project.in = last;
    project.out = last = builder.Buffer("last_projected", config.embedding_size, true);
    builder.Add(project);
  }
  AddLogits(builder, last, embedding);
}

void ReadOpt(JsonReader& reader, load::ModelConfig& config) {
  config.qkv_bias = config.output_bias = config.mlp_bias = reader.Bool("enable_bias", true);
  config.embedding_size = static_cast<int>(reader.Int("word_embed_proj_dim", config.hidden_size));
  config.layer_norm = true;
  config.norm_before = reader.Bool("do_layer_norm_before", true);
  config.final_norm = config.norm_before && !reader.Bool("_remove_final_layer_norm", false);
  config.norm_affine = reader.Bool("layer_norm_elementwise_affine", true);
  if (config.heads > 0 && config.hidden_size % config.heads != 0) {
    reader.Fail("hidden_size must be a multiple of num_attention_heads");
  }
}

constexpr TensorName kOptTensors[] = {
    {Part::kPositions, "embed_positions"},
    {Part::kProjectIn, "project_in"},
    {Part::kProjectOut, "project_out"},
    {Part::kFinalNorm, "final_layer_norm"},
    {Part::kAttentionNorm, "self_attn_layer_norm"},
    {Part::kOutput, "self_attn.out_proj"},
    {Part::kMlpNorm, "final_layer_norm"},
    {Part::kUp, "fc1"},
    {Part::kDown, "fc2"},
};
constexpr const char* kOptPrefixes[] = {"model.decoder.", "decoder."};

}  // namespace

extern const Family kOpt{
    .name = "opt",
    .title = "OPT",
    .json = {.names = {{"OPTForCausalLM", "opt"}},
             .tied_embeddings = true,
             .width_key = "ffn_dim",
             .epsilon_key = "",
             .activation_key = "activation_function",
             .activation = "relu",
             .rope = nullptr,
             .read = ReadOpt},
    .tensors = {.own = kOptTensors, .prefixes = kOptPrefixes},
    .write = WriteOpt,
};

}  // namespace quire::model
