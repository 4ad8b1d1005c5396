// Nemotron-H, Nemotron Nano 2 and Nemotron 3 Nano (NVIDIA): each layer is one block alone behind a
// norm: Mamba-2, attention without positions, an mlp, or experts beside one that everyone uses.
// Neither mlp nor experts have a gate; their activation is a squared ReLU.
#include "worker/model/family.h"
#include "worker/model/nemotron_config.h"

namespace quire::model {
namespace {

using Mixer = load::ModelConfig::Mixer;

constexpr const char* kPrefixes[] = {"backbone.", "model."};

constexpr TensorName kNemotronHTensors[] = {
    {Part::kEmbedding, "embeddings"},
    {Part::kFinalNorm, "norm_f"},
    {Part::kAttentionNorm, "norm"},
    {Part::kQuery, "mixer.q_proj"},
    {Part::kKey, "mixer.k_proj"},
    {Part::kValue, "mixer.v_proj"},
    {Part::kOutput, "mixer.o_proj"},
    {Part::kUp, "mixer.up_proj"},
    {Part::kDown, "mixer.down_proj"},
    {Part::kRecurrentIn, "mixer.in_proj"},
    {Part::kConvolution, "mixer.conv1d"},
    {Part::kDecay, "mixer.A_log$"},
    {Part::kStepBias, "mixer.dt_bias$"},
    {Part::kSkip, "mixer.D$"},
    {Part::kGatedNorm, "mixer.norm"},
    {Part::kRecurrentOut, "mixer.out_proj"},
    {Part::kRouter, "mixer.gate"},
    {Part::kSelectionBias, "mixer.gate.e_score_correction_bias$"},
    {Part::kExpertUp, "mixer.experts.*.up_proj"},
    {Part::kExpertDown, "mixer.experts.*.down_proj"},
    {Part::kSharedUp, "mixer.shared_experts.up_proj"},
    {Part::kSharedDown, "mixer.shared_experts.down_proj"},
};

void WriteNemotronH(ProgramBuilder& builder, const DecoderForm& form) {
  const load::ModelConfig& config = builder.config();
  const DecoderBuffers buffers = MakeBuffers(builder, form);
  const kernels::BufferId hidden = buffers.hidden;
  const kernels::WeightId embedding = AddEmbedding(builder, buffers, 1.0f);
  for (int layer = 0; layer < config.layers; ++layer) {
    AddNorm(builder, {Part::kAttentionNorm, layer, hidden, buffers.normed});
    switch (config.mixers[static_cast<size_t>(layer)]) {
      case Mixer::kRecurrent:
        AddRecurrent(builder, buffers.recurrent, layer, buffers.normed, hidden);
        break;
      case Mixer::kAttention:
        AddAttention(builder, buffers, {.layer = layer, .out = hidden});
        break;
      case Mixer::kMlp:
        AddMlp(builder, buffers, layer, hidden, /*accumulate=*/true);
        break;
      case Mixer::kExperts:
        AddExperts(builder, buffers, layer, hidden, /*accumulate=*/true);
        break;
    }
  }
  AddHead(builder, hidden, embedding);
}

}  // namespace

extern const Family kNemotronH{
    .name = "nemotron_h",
    .title = "Nemotron-H, Nemotron Nano 2, Nemotron 3 Nano",
    .json = {.names = {{"NemotronHForCausalLM", "nemotron_h"}},
             .head_dim = 128,
             .width = 21'504,
             .max_positions = 4'096,
             .epsilon_key = "layer_norm_epsilon",
             .activation_key = "mlp_hidden_act",
             .activation = "relu2",
             .attention_bias = true,
             .mlp_bias = true,
             .listed_layers = true,
             .rope = nullptr,
             .read = ReadNemotronH},
    .gguf = {.architecture = "nemotron_h",
             .with_experts = "nemotron_h_moe",
             .recurrent = true,
             .rotary = false,
             .experts = GgufForm::Experts::kRouted,
             .read = ReadNemotronHGguf},
    .tensors = {.own = kNemotronHTensors, .prefixes = kPrefixes},
    .write = WriteNemotronH,
};

}  // namespace quire::model
