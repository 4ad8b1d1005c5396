#include "worker/load/gemma_form.h"

#include "absl/strings/str_cat.h"
#include "worker/load/model_config.h"

namespace quire::load {

absl::Status CheckGemmaForm(const ModelConfig& config) {
  const GemmaForm& form = config.gemma;
  if (form.full_head_dim == 0) return absl::OkStatus();
  if (form.full_head_dim < 0 || form.full_head_dim > kMaxHeadDimension ||
      form.full_head_dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("global_head_dim is ", form.full_head_dim,
                                                   ", it must be even, from 2 to ",
                                                   kMaxHeadDimension));
  }
  if (form.full_kv_heads < 1 || config.heads % form.full_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("num_global_key_value_heads is ",
                                                   form.full_kv_heads, ", it must divide the ",
                                                   config.heads, " of num_attention_heads"));
  }
  if (form.layer_input < 0 || form.layer_input > kMaxWidth / config.layers) {
    return absl::InvalidArgumentError(absl::StrCat("hidden_size_per_layer_input is ",
                                                   form.layer_input, ", allowed are 0 to ",
                                                   kMaxWidth / config.layers));
  }
  if (form.shared_layers < 0 || form.shared_layers >= config.layers) {
    return absl::InvalidArgumentError(absl::StrCat("num_kv_shared_layers is ", form.shared_layers,
                                                   ", allowed are 0 to ", config.layers - 1));
  }
  if (config.layer_windows.size() != static_cast<size_t>(config.layers)) return absl::OkStatus();
  for (int layer = config.layers - form.shared_layers; layer < config.layers; ++layer) {
    if (config.KeysOf(layer) >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("num_kv_shared_layers is ", form.shared_layers,
                                                   ", no layer of the kind of layer ", layer,
                                                   " is left whose keys it can read"));
  }
  return absl::OkStatus();
}

std::string GemmaText(const GemmaForm& form) {
  if (form.full_head_dim == 0) return "";
  return absl::StrCat("gemma=", form.full_head_dim, ",", form.full_kv_heads, ",",
                      form.keys_are_values, ",", form.shared_layers, ",", form.wide_shared, ",",
                      form.layer_input, "\n");
}

}  // namespace quire::load
