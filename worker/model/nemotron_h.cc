// Nemotron-H, Nemotron Nano 2 and Nemotron 3 Nano (NVIDIA): each layer is one block alone behind a
// norm: Mamba-2, attention without positions, an mlp, or experts beside one that everyone uses.
// Neither mlp nor experts have a gate; their activation is a squared ReLU.
#include <cmath>

#include "kernels/kv_layout.h"
#include "worker/model/family.h"
#include "worker/model/routed_experts.h"

namespace quire::model {
namespace {

using Mixer = load::ModelConfig::Mixer;

// A step is a softplus, and no float32 one comes near it: files write this in the stead of no end.
constexpr double kNoEnd = 1e20;

struct MixerName {
  char letter;  // in hybrid_override_pattern
  std::string_view names[2];
  Mixer mixer;
};
constexpr MixerName kMixers[] = {
    {'M', {"mamba", "linear_attention"}, Mixer::kRecurrent},
    {'*', {"attention", "full_attention"}, Mixer::kAttention},
    {'-', {"mlp", "mlp"}, Mixer::kMlp},
    {'E', {"moe", "moe"}, Mixer::kExperts},
};

void ReadPattern(JsonReader& reader, load::ModelConfig& config) {
  const std::string pattern = reader.String("hybrid_override_pattern", "");
  for (const char letter : pattern) {
    for (const MixerName& own : kMixers) {
      if (own.letter == letter) config.mixers.push_back(own.mixer);
    }
    if (std::ranges::count(kMixers, letter, &MixerName::letter) == 0) {
      return reader.Fail(absl::StrCat("hybrid_override_pattern has the letter \"",
                                      std::string(1, letter), "\", served are M, *, - and E"));
    }
  }
}

void ReadList(JsonReader& reader, std::string_view key, const json::Array& types,
              load::ModelConfig& config) {
  for (const json::Value& value : types) {
    const absl::StatusOr<std::string_view> type = json::AsString(value, key);
    const size_t before = config.mixers.size();
    for (const MixerName& own : kMixers) {
      const bool named = type.ok() && (*type == own.names[0] || *type == own.names[1]);
      if (named) config.mixers.push_back(own.mixer);
    }
    if (config.mixers.size() > before) continue;
    return reader.Fail(absl::StrCat(
        AbslView(key), " may hold \"mamba\", \"attention\", \"mlp\" and \"moe\" only"));
  }
}

// Newer files list the layers, older ones have a letter for each.
void ReadMixers(JsonReader& reader, load::ModelConfig& config) {
  std::string_view key = "hybrid_override_pattern";
  for (const std::string_view list : {"layers_block_type", "layer_types"}) {
    if (key != "hybrid_override_pattern") break;
    const json::Array* types = reader.ArrayAt(list);
    if (types == nullptr) continue;
    key = list;
    if (types->size() <= load::kMaxLayers) ReadList(reader, key, *types, config);
  }
  if (key == "hybrid_override_pattern") ReadPattern(reader, config);
  if (!reader.status().ok()) return;
  if (config.mixers.empty()) return reader.Fail(absl::StrCat(AbslView(key), " is missing"));
  const auto count = static_cast<int>(config.mixers.size());
  if (reader.Has("num_hidden_layers") && config.layers != count) {
    return reader.Fail(absl::StrCat(AbslView(key), " has ", count, " entries for ", config.layers,
                                    " layers of num_hidden_layers"));
  }
  config.layers = count;
  if (std::ranges::count(config.mixers, Mixer::kRecurrent) == 0) {
    return reader.Fail(absl::StrCat(AbslView(key), " names no layer of Mamba-2"));
  }
}

void SetLayers(load::ModelConfig& config) {
  config.layer_windows.clear();
  config.experts.layers.clear();
  for (const Mixer mixer : config.mixers) {
    config.layer_windows.push_back(mixer == Mixer::kAttention ? 0 : kernels::kNoKeys);
    if (config.experts.count > 0) config.experts.layers.push_back(mixer == Mixer::kExperts);
  }
}

// Where steps end, is a number or what JSON has no word for.
void RefuseStepLimits(JsonReader& reader) {
  const json::Array* limits = reader.ArrayAt("time_step_limit");
  if (limits == nullptr) return;
  const auto number = [limits](size_t i, double otherwise) {
    return (*limits)[i].is_number() ? (*limits)[i].to_number<double>() : otherwise;
  };
  const bool open = limits->size() == 2 && number(0, -1.0) == 0.0 && number(1, kNoEnd) >= kNoEnd;
  if (!open) reader.Fail("time_step_limit is not served, only from 0 without an end is");
}

void ReadMamba(JsonReader& reader, load::ModelConfig& config) {
  load::RecurrentConfig& recurrent = config.recurrent;
  recurrent.kind = load::RecurrentConfig::Kind::kMamba2;
  recurrent.taps = static_cast<int>(reader.RequiredInt("conv_kernel"));
  recurrent.key_heads = static_cast<int>(reader.RequiredInt("n_groups"));
  recurrent.value_heads = static_cast<int>(reader.RequiredInt("mamba_num_heads"));
  recurrent.key_dim = static_cast<int>(reader.RequiredInt("ssm_state_size"));
  recurrent.value_dim = static_cast<int>(reader.RequiredInt("mamba_head_dim"));
  recurrent.biases = reader.Bool("use_conv_bias", true);
  if (const std::string act = reader.String("mamba_hidden_act", "silu"); act != "silu") {
    reader.Fail("mamba_hidden_act \"" + act + "\" is not served, silu is");
  }
  for (const std::string_view bias : {"use_bias", "mamba_proj_bias"}) {
    if (reader.Bool(bias, false)) reader.Fail(absl::StrCat(AbslView(bias), " is not served"));
  }
  RefuseStepLimits(reader);
}

void ReadNemotronExperts(JsonReader& reader, load::ModelConfig& config) {
  if (reader.Has("moe_latent_size")) {
    return reader.Fail("moe_latent_size: experts of a latent width are not served");
  }
  if (reader.Int("n_shared_experts", 1) != 1) {
    return reader.Fail("n_shared_experts must be 1, other counts are not served");
  }
  if (config.mlp_bias) return reader.Fail("mlp_bias is not served beside experts");
  ReadRoutedExperts(reader, config, {.dense = 0});
  config.experts.shared_width =
      static_cast<int>(reader.RequiredInt("moe_shared_expert_intermediate_size"));
  if (config.experts.shared_width < 1) {
    reader.Fail("moe_shared_expert_intermediate_size must be at least 1");
  }
}

void ReadNemotronH(JsonReader& reader, load::ModelConfig& config) {
  ReadMixers(reader, config);
  config.norm_epsilon = reader.Double("layer_norm_epsilon", 1e-5);
  // The first models call it so.
  if (!reader.Has("head_dim") && reader.Has("attention_head_dim")) {
    config.head_dim = static_cast<int>(reader.Int("attention_head_dim", 0));
    if (config.head_dim > 0) config.attention_scale = 1.0 / std::sqrt(double(config.head_dim));
  }
  if (reader.Has("sliding_window")) reader.Fail("sliding_window is not served for this family");
  ReadMamba(reader, config);
  if (!reader.status().ok()) return;
  const bool experts = std::ranges::count(config.mixers, Mixer::kExperts) > 0;
  if (experts) ReadNemotronExperts(reader, config);
  SetLayers(config);
}

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
    .tensors = {.own = kNemotronHTensors, .prefixes = kPrefixes},
    .write = WriteNemotronH,
};

}  // namespace quire::model
