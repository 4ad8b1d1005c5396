#include "worker/model/nemotron_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/kv_layout.h"
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

}  // namespace

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

namespace {

// What a layer is follows from its numbers: those of Mamba-2 have neither heads nor an mlp.
void ReadGgufMixers(GgufReader& reader, load::ModelConfig& config) {
  const std::vector<int64_t> heads = reader.LayerInts("attention.head_count_kv", config.layers);
  const std::vector<int64_t> widths = reader.LayerInts("feed_forward_length", config.layers);
  for (size_t i = 0; i < heads.size(); ++i) {
    const Mixer block = config.experts.count > 0 ? Mixer::kExperts : Mixer::kMlp;
    config.mixers.push_back(heads[i] > 0    ? Mixer::kAttention
                            : widths[i] > 0 ? block
                                            : Mixer::kRecurrent);
    const std::string layer = absl::StrCat("blk.", i, ".");
    if (heads[i] > 0) config.qkv_bias |= reader.HasTensor(layer + "attn_q.bias");
    if (heads[i] > 0) config.output_bias |= reader.HasTensor(layer + "attn_output.bias");
    config.mlp_bias |= reader.HasTensor(layer + "ffn_up.bias");
  }
  if (std::ranges::count(config.mixers, Mixer::kRecurrent) == 0) {
    reader.Fail("feed_forward_length leaves no layer of Mamba-2");
  }
}

}  // namespace

void ReadNemotronHGguf(GgufReader& reader, load::ModelConfig& config) {
  config.activation = load::ModelConfig::Activation::kReluSquared;
  ReadGgufMixers(reader, config);
  load::RecurrentConfig& recurrent = config.recurrent;
  recurrent.kind = load::RecurrentConfig::Kind::kMamba2;
  ReadStateSizes(reader, config);
  for (size_t i = 0; i < config.mixers.size(); ++i) {
    recurrent.biases |= reader.HasTensor(absl::StrCat("blk.", i, ".ssm_conv1d.bias"));
  }
  if (reader.Int("moe_latent_size", 0) > 0) {
    return reader.Fail("moe_latent_size: experts of a latent width are not served");
  }
  // The only scores that its models have; files do not say so.
  config.experts.rule.scores = kernels::RoutingRule::Scores::kSigmoid;
  SetLayers(config);
}

}  // namespace quire::model
