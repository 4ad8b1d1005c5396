// Granite 4 H: Mamba-2 in most layers, attention without positions in some, Granite's scales, and
// an mlp, or experts beside one that everyone uses.
#include <algorithm>
#include <cmath>

#include "kernels/kv_layout.h"
#include "worker/model/family.h"
#include "worker/model/granite.h"

namespace quire::model {
namespace {

void ReadMamba(JsonReader& reader, load::ModelConfig& config) {
  load::RecurrentConfig& recurrent = config.recurrent;
  recurrent.kind = load::RecurrentConfig::Kind::kMamba2;
  recurrent.taps = static_cast<int>(reader.Int("mamba_d_conv", 4));
  recurrent.key_heads = static_cast<int>(reader.Int("mamba_n_groups", 1));
  recurrent.value_heads = static_cast<int>(reader.Int("mamba_n_heads", 128));
  recurrent.key_dim = static_cast<int>(reader.Int("mamba_d_state", 256));
  recurrent.biases = reader.Bool("mamba_conv_bias", true);
  const int64_t inner = reader.Int("mamba_expand", 2) * config.hidden_size;
  if (recurrent.value_heads < 1 || inner % recurrent.value_heads != 0) {
    return reader.Fail(absl::StrCat("mamba_n_heads is ", recurrent.value_heads,
                                    ", it must divide mamba_expand · hidden_size, ", inner));
  }
  recurrent.value_dim = static_cast<int>(inner / recurrent.value_heads);
  if (reader.Bool("mamba_proj_bias", false)) reader.Fail("mamba_proj_bias is not served");
  const json::Array* limits = reader.ArrayAt("time_step_limit");
  if (limits == nullptr) return;
  const bool open = limits->size() == 2 && (*limits)[0].is_number() &&
                    (*limits)[0].to_number<double>() == 0.0 && !(*limits)[1].is_number();
  if (!open) reader.Fail("time_step_limit is not served, only from 0 without an end is");
}

void ReadGraniteHybrid(JsonReader& reader, load::ModelConfig& config) {
  ReadGraniteScales(reader, config);
  ReadMamba(reader, config);
  const std::string positions = reader.String("position_embedding_type", "nope");
  config.rotary = positions == "rope";
  if (!config.rotary && positions != "nope") {
    reader.Fail("position_embedding_type \"" + positions + "\" is not served; nope and rope are");
  }
  ReadRecurrentLayers(reader, config, {"mamba", "linear_attention"}, [](int) { return true; });
  const auto shared = static_cast<int>(reader.Int("shared_intermediate_size", 1'024));
  if (reader.Int("num_local_experts", 8) == 0) {
    config.intermediate_size = shared;
    return;
  }
  ReadExperts(reader, config,
              {.count = "num_local_experts", .width = "intermediate_size", .renormalise = true});
  load::ExpertConfig& experts = config.experts;
  experts.shared_width = shared;
  experts.shared_gated = false;
  ScaleExperts(config);
}

// Layers without KV heads are of Mamba-2.
void ReadGraniteHybridGguf(GgufReader& reader, load::ModelConfig& config) {
  ReadGraniteScales(reader, config);
  config.recurrent.kind = load::RecurrentConfig::Kind::kMamba2;
  ReadStateSizes(reader, config);
  config.layer_windows = reader.LayersWithout("attention.head_count_kv", config.layers);
  if (std::ranges::count(config.layer_windows, kernels::kNoKeys) == 0) {
    return reader.Fail("attention.head_count_kv leaves no layer of Mamba-2");
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = absl::StrCat("blk.", layer, ".");
    config.recurrent.biases |= reader.HasTensor(prefix + "ssm_conv1d.bias");
    config.qkv_bias |= reader.HasTensor(prefix + "attn_q.bias");
    config.output_bias |= reader.HasTensor(prefix + "attn_output.bias");
  }
  // This key says whether positions turn q and k.
  if (reader.Bool("rope.scaling.finetuned", true)) {
    return reader.Fail(
        "rope.scaling.finetuned is true: positions turn q and k; served are files where they do "
        "not, as those of Granite 4 H");
  }
  if (config.experts.count > 0) return ScaleExperts(config);
  config.intermediate_size =
      ClampCount(reader.Int("expert_shared_feed_forward_length", config.intermediate_size));
}

// Where there are no experts, the shared mlp is the layer's.
constexpr TensorName kGraniteHybridTensors[] = {
    {Part::kRecurrentIn, "mamba.in_proj"},
    {Part::kConvolution, "mamba.conv1d"},
    {Part::kDecay, "mamba.A_log$"},
    {Part::kStepBias, "mamba.dt_bias$"},
    {Part::kSkip, "mamba.D$"},
    {Part::kGatedNorm, "mamba.norm"},
    {Part::kRecurrentOut, "mamba.out_proj"},
    {Part::kGate, "shared_mlp.input_linear"},
    {Part::kUp, "shared_mlp.input_linear"},
    {Part::kDown, "shared_mlp.output_linear"},
    {Part::kSharedGate, "shared_mlp.input_linear"},
    {Part::kSharedUp, "shared_mlp.input_linear"},
    {Part::kSharedDown, "shared_mlp.output_linear"},
    {Part::kRouter, "block_sparse_moe.router.layer"},
    {Part::kFusedGateUp, "block_sparse_moe.input_linear"},
    {Part::kFusedDown, "block_sparse_moe.output_linear"},
    {Part::kExpertGate, "block_sparse_moe.experts.*.gate_proj"},
    {Part::kExpertUp, "block_sparse_moe.experts.*.up_proj"},
    {Part::kExpertDown, "block_sparse_moe.experts.*.down_proj"},
};

}  // namespace

extern const Family kGraniteHybrid{
    .name = "granite_hybrid",
    .title = "Granite 4 H",
    .json = {.names = {{"GraniteMoeHybridForCausalLM", "granitemoehybrid"}},
             .width = 1'024,
             .attention_bias = true,
             .read = ReadGraniteHybrid},
    .gguf = {.architecture = "granitehybrid",
             .recurrent = true,
             .rotary = false,
             .experts = GgufForm::Experts::kRouted,
             .read = ReadGraniteHybridGguf},
    .tensors = {.own = kGraniteHybridTensors},
};

}  // namespace quire::model
