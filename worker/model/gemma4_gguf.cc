#include "worker/model/gemma4_gguf.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace quire::model {
namespace {

// Full layers turn the first part of each head: the others' frequencies are divided by 1e30.
constexpr double kStill = 1e20;

void ReadProportion(GgufReader& reader, load::ModelConfig& config) {
  const std::vector<double> factors = reader.Tensor("rope_freqs.weight");
  const auto half = static_cast<size_t>(std::max(config.gemma.full_head_dim / 2, 0));
  const auto turning = static_cast<size_t>(
      std::find_if(factors.begin(), factors.end(), [](double f) { return f != 1.0; }) -
      factors.begin());
  const bool rest = std::all_of(factors.begin() + static_cast<std::ptrdiff_t>(turning),
                                factors.end(), [](double f) { return f >= kStill; });
  if (factors.empty() || factors.size() != half || !rest) {
    return reader.Fail(absl::StrCat("rope.dimension_count: rope_freqs.weight must hold ", half,
                                    " numbers, ones and then 1e30"));
  }
  config.rope.scaling = load::RopeConfig::Scaling::kProportional;
  config.rope.proportion = static_cast<double>(turning) / static_cast<double>(half);
}

// The number of each kind of layer; it must be one for each.
void ReadHeads(GgufReader& reader, load::ModelConfig& config) {
  const std::vector<int64_t> heads = reader.LayerInts("attention.head_count_kv", config.layers);
  int64_t found[2] = {0, 0};
  for (size_t i = 0; i < heads.size(); ++i) {
    int64_t& of_kind = found[config.layer_windows[i] == 0 ? 0 : 1];
    if (of_kind != 0 && of_kind != heads[i]) {
      return reader.Fail("attention.head_count_kv: layers of one kind differ, which is not served");
    }
    of_kind = heads[i];
  }
  config.gemma.full_kv_heads = ClampCount(found[0] != 0 ? found[0] : found[1]);
  config.kv_heads = ClampCount(found[1] != 0 ? found[1] : found[0]);
}

// Layers that read the keys of others may have an mlp of twice the width.
void ReadWidths(GgufReader& reader, load::ModelConfig& config) {
  const std::vector<int64_t> widths = reader.LayerInts("feed_forward_length", config.layers);
  const int64_t width = widths.empty() ? 0 : widths.front();
  config.gemma.wide_shared = !widths.empty() && widths.back() != width;
  for (int layer = 0; layer < config.layers; ++layer) {
    const bool wide = config.gemma.wide_shared && config.KeysOf(layer) != layer;
    if (widths[static_cast<size_t>(layer)] == width * (wide ? 2 : 1)) continue;
    return reader.Fail(absl::StrCat("feed_forward_length: layer ", layer, " has ",
                                    widths[static_cast<size_t>(layer)], " and the first ", width,
                                    ", which is not served"));
  }
}

// Values of full layers are the projection of keys where these layers have none of their own.
void ReadValues(GgufReader& reader, load::ModelConfig& config) {
  int with = 0, without = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    if (config.layer_windows[static_cast<size_t>(layer)] != 0 || config.KeysOf(layer) != layer) {
      continue;
    }
    ++(reader.HasTensor(absl::StrCat("blk.", layer, ".attn_v.weight")) ? with : without);
  }
  if (with > 0 && without > 0) {
    reader.Fail("attention.head_count_kv: some full layers have no attn_v, others do");
  }
  config.gemma.keys_are_values = without > 0;
}

}  // namespace

void ReadGemma4Gguf(GgufReader& reader, load::ModelConfig& config) {
  load::GemmaForm& form = config.gemma;
  config.activation = load::ModelConfig::Activation::kGeluTanh;
  config.attention_scale = 1.0;
  config.logit_softcap = reader.Double("final_logit_softcapping", 0.0);
  form.full_head_dim = config.head_dim;
  config.head_dim = ClampCount(reader.RequiredInt("attention.key_length_swa"));
  form.shared_layers = ClampCount(reader.Int("attention.shared_kv_layers", 0));
  form.layer_input = ClampCount(reader.Int("embedding_length_per_layer_input", 0));
  if (form.shared_layers < 0 || form.shared_layers >= config.layers) {
    return reader.Fail(absl::StrCat("attention.shared_kv_layers is ", form.shared_layers, " of ",
                                    config.layers, " layers"));
  }
  const int window = ClampCount(reader.RequiredInt("attention.sliding_window"));
  for (const int64_t slides : reader.LayerInts("attention.sliding_window_pattern", config.layers)) {
    config.layer_windows.push_back(slides != 0 ? window : 0);
  }
  if (window < 1) return reader.Fail("attention.sliding_window must be above 0");
  config.sliding_rope = load::RopeConfig{};
  config.sliding_rope.theta = reader.Double("rope.freq_base_swa", 10'000.0);
  if (const int64_t turning = reader.Int("rope.dimension_count_swa", config.head_dim);
      turning != config.head_dim) {
    return reader.Fail(absl::StrCat("rope.dimension_count_swa is ", turning,
                                    ", served is the head dimension ", config.head_dim));
  }
  if (!reader.status().ok()) return;
  ReadHeads(reader, config);
  ReadWidths(reader, config);
  ReadValues(reader, config);
  ReadProportion(reader, config);
}

}  // namespace quire::model
