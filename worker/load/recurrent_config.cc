#include "worker/load/recurrent_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/kv_layout.h"
#include "worker/load/model_config.h"

namespace quire::load {
namespace {

using Kind = RecurrentConfig::Kind;

absl::Status CheckCount(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ", allowed are ", low, " to ", high));
}

// The fields as files call them.
struct Names {
  const char* taps;
  const char* key_heads = "";
  const char* value_heads = "";
  const char* key_dim = "";
  const char* value_dim = "";
};
Names NamesOf(const ModelConfig& config) {
  const Kind kind = config.recurrent.kind;
  if (kind == Kind::kShortConvolution) return {"conv_L_cache"};
  if (!config.mixers.empty()) {  // Nemotron-H
    return {"conv_kernel", "n_groups", "mamba_num_heads", "ssm_state_size", "mamba_head_dim"};
  }
  if (kind == Kind::kMamba2) {
    return {"mamba_d_conv", "mamba_n_groups", "mamba_n_heads", "mamba_d_state", "mamba_d_head"};
  }
  return {"linear_conv_kernel_dim", "linear_num_key_heads", "linear_num_value_heads",
          "linear_key_head_dim", "linear_value_head_dim"};
}

}  // namespace

absl::Status CheckRecurrentLayers(const ModelConfig& config) {
  const RecurrentConfig& recurrent = config.recurrent;
  const auto count = static_cast<int64_t>(
      std::count(config.layer_windows.begin(), config.layer_windows.end(), kernels::kNoKeys));
  if (!recurrent.Exists()) {
    if (count == 0) return absl::OkStatus();
    return absl::InvalidArgumentError("layer_types names layers without attention");
  }
  if (count == config.layers) {
    return absl::InvalidArgumentError("no layer has attention, which is not served");
  }
  const Names names = NamesOf(config);
  absl::Status status = CheckCount(names.taps, recurrent.taps, 2, kernels::kMostTaps);
  if (recurrent.kind == Kind::kShortConvolution) return status;
  status.Update(CheckCount(names.key_heads, recurrent.key_heads, 1, kMaxHeads));
  status.Update(CheckCount(names.value_heads, recurrent.value_heads, 1, kMaxHeads));
  status.Update(CheckCount(names.key_dim, recurrent.key_dim, 1, kMaxHeadDimension));
  status.Update(CheckCount(names.value_dim, recurrent.value_dim, 1, kMaxHeadDimension));
  if (!status.ok()) return status;
  if (recurrent.value_heads % recurrent.key_heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(names.value_heads, " is ", recurrent.value_heads,
                                                 ", no multiple of ", names.key_heads, " ",
                                                 recurrent.key_heads));
}

std::string RecurrentText(const ModelConfig& config) {
  const RecurrentConfig& recurrent = config.recurrent;
  std::string text;
  if (recurrent.Exists()) {
    absl::StrAppend(&text, "recurrent=", static_cast<int>(recurrent.kind), ",", recurrent.taps, ",",
                    recurrent.key_heads, ",", recurrent.value_heads, ",", recurrent.key_dim, ",",
                    recurrent.value_dim, recurrent.biases ? ",biases" : "",
                    recurrent.tiled ? ",tiled" : "", "\n");
  }
  if (config.gated_attention) text += "gated_attention=1\n";
  return text;
}

}  // namespace quire::load
