#include "worker/model/used_tensors.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace quire::model {
namespace {

// Ends of names: computed from the configuration, or made for another engine's cache or rounded
// activations.
constexpr std::string_view kBeside[] = {
    ".rotary_emb.inv_freq", ".attn_rot_embd.weight", ".k_scale", ".v_scale", ".q_scale",
    ".input_scale"};

// The number of the layer that a tensor belongs to; −1: none.
int LayerOf(std::string_view name, std::string_view prefix) {
  if (name.substr(0, prefix.size()) != prefix) return -1;
  name.remove_prefix(prefix.size());
  const std::string_view number = name.substr(0, name.find('.'));
  int layer = -1;
  return absl::SimpleAtoi(AbslView(number), &layer) ? layer : -1;
}

}  // namespace

bool UsedTensors::Uses(const load::Tensor& tensor) const {
  if (tensors_.count(&tensor) > 0) return true;
  // A module's tensors are its name and one more word, or a word with points in it.
  for (size_t end = tensor.name.rfind('.'); end != std::string::npos && end > 0;
       end = tensor.name.rfind('.', end - 1)) {
    if (modules_.count(tensor.name.substr(0, end)) > 0) return true;
  }
  return std::any_of(std::begin(kBeside), std::end(kBeside), [&](std::string_view end) {
    return absl::EndsWith(tensor.name, AbslView(end));
  });
}

absl::Status UsedTensors::CheckLayers(const load::ModelFiles& files, const TensorNaming& naming,
                                      const load::ModelConfig& config) const {
  for (const auto& [name, tensor] : files.tensors().all()) {
    int layer = files.is_gguf() ? LayerOf(name, "blk.") : -1;
    if (!files.is_gguf()) {
      for (const char* prefix : naming.prefixes) {
        layer = std::max(layer, LayerOf(name, absl::StrCat(prefix, "layers.")));
      }
    }
    if (layer < 0 || layer >= config.layers || config.Skips(layer) || Uses(tensor)) continue;
    return absl::InvalidArgumentError(absl::StrCat(tensor.file, ": tensor \"", name, "\" of shape ",
                                                   tensor.ShapeText(),
                                                   " belongs to no part of a model of the family ",
                                                   config.family, " with this configuration"));
  }
  return absl::OkStatus();
}

}  // namespace quire::model
