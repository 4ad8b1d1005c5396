#include "worker/model/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "kernels/kv_layout.h"
#include "worker/model/family.h"

namespace quire::model {
namespace {

using load::ModelConfig;

void ReadGgufRope(GgufReader& reader, const GgufForm& form, ModelConfig& config) {
  config.rotary = form.rotary;
  if (!form.rotary) return;
  config.rope.theta = reader.Double("rope.freq_base", 10'000.0);
  const std::string type = reader.String("rope.scaling.type", "none");
  // Before rope.scaling.* there was only a linear scale.
  const double old_scale = reader.Double("rope.scale_linear", 1.0);
  config.rope.factor = reader.Double("rope.scaling.factor", old_scale);
  const bool named = reader.Has("rope.scaling.type");
  if (type == "linear" || (!named && config.rope.factor != 1.0 && config.rope.factor != 0.0)) {
    config.rope.scaling = load::RopeConfig::Scaling::kLinear;
  } else if (type == "yarn") {
    config.rope.scaling = load::RopeConfig::Scaling::kYarn;
    config.rope.original_context = reader.Double("rope.scaling.original_context_length",
                                                 static_cast<double>(config.max_positions));
    config.rope.attention_factor =
        load::YarnMagnitude(config.rope.factor) * reader.Double("rope.scaling.attn_factor", 1.0);
  } else if (type == "none") {
    config.rope.factor = 1.0;
  } else {
    reader.Fail(absl::StrCat("rope.scaling.type \"", type,
                             "\" is not served; served are none, linear and yarn"));
  }
  config.sliding_rope = config.rope;
  if (form.latents) return;
  const int64_t rotary = reader.Int("rope.dimension_count", config.head_dim);
  if (form.partial_rope && rotary > 0 && rotary < config.head_dim) {
    config.rotary_dim = ClampCount(rotary);
  } else if (rotary != config.head_dim) {
    reader.Fail(absl::StrCat("rope.dimension_count is ", rotary, ", served is the head dimension ",
                             config.head_dim));
  }
}

void ReadGgufCommon(GgufReader& reader, const load::GgufFile& file, const GgufForm& form,
                    ModelConfig& config) {
  config.hidden_size = ClampCount(reader.RequiredInt("embedding_length"));
  config.embedding_size = config.hidden_size;
  const auto of_layers = [&](std::string_view key, int64_t otherwise) {
    if (form.kinds_of_layers) return ClampCount(reader.LayerInts(key, 1).front());
    return ClampCount(form.recurrent ? reader.PerLayerIntOrNone(key, otherwise)
                                     : reader.PerLayerInt(key, otherwise));
  };
  config.intermediate_size = of_layers("feed_forward_length", 0);
  // The last blocks may predict further tokens.
  config.layers = ClampCount(reader.RequiredInt("block_count")) -
                  std::max(ClampCount(reader.Int("nextn_predict_layers", 0)), 0);
  config.heads = ClampCount(reader.PerLayerInt("attention.head_count", 0));
  config.kv_heads = of_layers("attention.head_count_kv", config.heads);
  config.max_positions = ClampCount(reader.RequiredInt("context_length"));
  config.layer_norm = form.layer_norm;
  config.norm_bias = !form.layer_norm;
  // Files of Nemotron-H may have that of RMS norms under the other name alone.
  constexpr std::string_view kOfRms = "attention.layer_norm_rms_epsilon";
  constexpr std::string_view kOfLayerNorms = "attention.layer_norm_epsilon";
  const bool other = !form.rotary && !reader.Has(kOfRms);
  config.norm_epsilon = reader.RequiredDouble(form.layer_norm || other ? kOfLayerNorms : kOfRms);
  const int64_t divided = config.heads > 0 ? config.hidden_size / config.heads : 0;
  config.head_dim = ClampCount(reader.Int("attention.key_length", divided));
  const int64_t value_length = reader.Int("attention.value_length", config.head_dim);
  if (!form.latents && value_length != config.head_dim) {
    reader.Fail("attention.value_length differs from key_length: not served");
  }
  if (config.head_dim > 0)
    config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  // The table of embeddings decides, not the vocabulary: it may be padded.
  if (const load::Tensor* table = file.tensors().Find("token_embd.weight");
      table != nullptr && table->shape.size() == 2) {
    config.vocab_size = ClampCount(table->shape[0]);
  }
  config.tied_embeddings = file.tensors().Find("output.weight") == nullptr;
  config.qkv_bias = file.tensors().Find("blk.0.attn_q.bias") != nullptr;
  config.output_bias = file.tensors().Find("blk.0.attn_output.bias") != nullptr;
  config.head_norms =
      form.optional_head_norms && file.tensors().Find("blk.0.attn_q_norm.weight") != nullptr;
  config.mlp_bias = file.tensors().Find("blk.0.ffn_gate.bias") != nullptr;
  ReadGgufRope(reader, form, config);
}

// expert_gating_func has a number for each kind of scores.
void ReadGatingFunction(GgufReader& reader, kernels::RoutingRule& rule) {
  constexpr int64_t kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3;
  const int64_t function = reader.Int("expert_gating_func", kSoftmax);
  if (function == kSoftmaxOfChosen) {
    rule.renormalise = true;  // the same
    return;
  }
  if (function != kSoftmax && function != kSigmoid) {
    reader.Fail(
        absl::StrCat("expert_gating_func is ", function,
                     ", served are 1 (softmax), 2 (sigmoid) and 3 (softmax of the chosen)"));
  }
  if (function == kSigmoid) rule.scores = kernels::RoutingRule::Scores::kSigmoid;
}

// Groups, the bias of the choice, and shared experts without a gate.
void ReadRouted(GgufReader& reader, const load::GgufFile& file, load::ExpertConfig& experts) {
  kernels::RoutingRule& rule = experts.rule;
  experts.shared_gated = false;
  if (experts.shared_width == 0) {
    experts.shared_width =
        ClampCount(int64_t{ClampCount(reader.Int("expert_shared_count", 0))} * experts.width);
  }
  const auto& tensors = file.tensors().all();
  experts.selection_bias = std::any_of(tensors.begin(), tensors.end(), [](const auto& entry) {
    return absl::EndsWith(entry.first, ".exp_probs_b.bias");
  });
  rule.groups = ClampCount(std::max<int64_t>(reader.Int("expert_group_count", 1), 1));
  if (rule.groups == 1) return;
  rule.groups_used = ClampCount(reader.RequiredInt("expert_group_used_count"));
  rule.best_of_group = experts.selection_bias ? 2 : 1;
}

void ReadGgufExperts(GgufReader& reader, const load::GgufFile& file, const GgufForm& form,
                     ModelConfig& config) {
  using Experts = GgufForm::Experts;
  load::ExpertConfig& experts = config.experts;
  experts.count = ClampCount(reader.Int("expert_count", 0));
  if (experts.count == 0) return;
  if (form.experts == Experts::kNone) {
    return reader.Fail(absl::StrCat("expert_count is ", experts.count, ", ", config.family,
                                    " is served without experts"));
  }
  experts.width = ClampCount(reader.Int("expert_feed_forward_length", config.intermediate_size));
  experts.shared_width = ClampCount(reader.Int("expert_shared_feed_forward_length", 0));
  kernels::RoutingRule& rule = experts.rule;
  rule.chosen = ClampCount(reader.RequiredInt("expert_used_count"));
  rule.renormalise = reader.Bool("expert_weights_norm", form.experts == Experts::kRenormalised);
  const double scale = reader.Double("expert_weights_scale", 1.0);
  rule.scale = scale == 0.0 ? 1.0f : static_cast<float>(scale);  // 0 where files mean none
  ReadGatingFunction(reader, rule);
  if (form.experts == Experts::kRouted) {
    ReadRouted(reader, file, experts);
  } else if (reader.Int("expert_group_count", 1) > 1) {
    reader.Fail(
        absl::StrCat("expert_group_count: groups of experts are not served for ", config.family));
  }
  const int64_t dense = reader.Int("leading_dense_block_count", 0);
  for (int i = 0; i < std::min<int64_t>(config.layers, load::kMaxLayers); ++i) {
    experts.layers.push_back(i >= dense);
  }
}

}  // namespace

std::vector<double> GgufReader::Tensor(const std::string& name) {
  const load::Tensor* tensor = file_.tensors().Find(name);
  if (tensor == nullptr) return {};
  if (tensor->type != kernels::DType::kF32 || tensor->shape.size() != 1 ||
      tensor->shape[0] > load::kMaxHeadDimension / 2) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat(path_, ": tensor \"", name, "\" has type ", tensor->type_name, " and shape ",
                     tensor->ShapeText(), ", expected is a vector of F32 for half a head")));
    return {};
  }
  std::vector<float> values(static_cast<size_t>(tensor->shape[0]));
  std::memcpy(values.data(), tensor->bytes.data(), values.size() * sizeof(float));
  return {values.begin(), values.end()};
}

int64_t GgufReader::PerLayerInt(std::string_view key, int64_t otherwise) {
  const std::string full = prefix_ + std::string(key);
  absl::StatusOr<load::GgufArray> array = file_.Array(full);
  if (!array.ok()) return Int(key, otherwise);
  absl::StatusOr<std::vector<int64_t>> values = array->Integers(load::kMaxGgufLayers);
  if (array->count > load::kMaxGgufLayers) {
    Fail(absl::StrCat(AbslView(key), ": ", values.status().message()));
    return otherwise;
  }
  if (!values.ok() || values->empty() ||
      std::adjacent_find(values->begin(), values->end(), std::not_equal_to<>()) != values->end()) {
    Fail(absl::StrCat(AbslView(key), ": layers that differ are not served"));
    return otherwise;
  }
  return values->front();
}

int64_t GgufReader::PerLayerIntOrNone(std::string_view key, int64_t otherwise) {
  const absl::StatusOr<load::GgufArray> array = file_.Array(prefix_ + std::string(key));
  if (!array.ok()) return Int(key, otherwise);
  const absl::StatusOr<std::vector<int64_t>> values = array->Integers(load::kMaxGgufLayers);
  int64_t number = 0;
  for (size_t i = 0; values.ok() && i < values->size(); ++i) {
    if ((*values)[i] == 0 || (*values)[i] == number) continue;
    if (number != 0) Fail(absl::StrCat(AbslView(key), ": layers that differ are not served"));
    number = (*values)[i];
  }
  if (!values.ok() || number == 0) Fail(absl::StrCat(AbslView(key), " holds no number above 0"));
  return number;
}

std::vector<int64_t> GgufReader::LayerInts(std::string_view key, int layers) {
  const auto count = static_cast<size_t>(layers);
  const absl::StatusOr<load::GgufArray> array = file_.Array(prefix_ + std::string(key));
  if (!array.ok()) return std::vector<int64_t>(count, RequiredInt(key));
  absl::StatusOr<std::vector<int64_t>> values = array->Integers(load::kMaxGgufLayers);
  if (!values.ok() || values->size() < count) {
    Fail(absl::StrCat(AbslView(key), " must have ", layers, " numbers"));
    return std::vector<int64_t>(count, 0);
  }
  values->resize(count);
  return *std::move(values);
}

std::vector<int> GgufReader::LayersWithout(std::string_view key, int layers) {
  std::vector<int> windows(static_cast<size_t>(layers), 0);
  const absl::StatusOr<load::GgufArray> array = file_.Array(prefix_ + std::string(key));
  if (!array.ok()) return windows;
  const absl::StatusOr<std::vector<int64_t>> values = array->Integers(load::kMaxGgufLayers);
  if (!values.ok() || values->size() != windows.size()) {
    Fail(absl::StrCat(AbslView(key), " must have ", layers, " numbers"));
    return windows;
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    if ((*values)[i] == 0) windows[i] = kernels::kNoKeys;
  }
  return windows;
}

int ClampCount(int64_t value) {
  return static_cast<int>(std::clamp<int64_t>(value, -1, int64_t{1} << 30));
}

void ReadStateSizes(GgufReader& reader, load::ModelConfig& config) {
  load::RecurrentConfig& recurrent = config.recurrent;
  recurrent.taps = ClampCount(reader.RequiredInt("ssm.conv_kernel"));
  recurrent.key_heads = ClampCount(reader.RequiredInt("ssm.group_count"));
  recurrent.value_heads = ClampCount(reader.RequiredInt("ssm.time_step_rank"));
  recurrent.key_dim = ClampCount(reader.RequiredInt("ssm.state_size"));
  const int inner = ClampCount(reader.RequiredInt("ssm.inner_size"));
  if (recurrent.value_heads < 1 || inner % recurrent.value_heads != 0) {
    return reader.Fail(absl::StrCat("ssm.time_step_rank is ", recurrent.value_heads,
                                    ", it must divide ssm.inner_size, ", inner));
  }
  recurrent.value_dim = inner / recurrent.value_heads;
}

void ReadWindow(GgufReader& reader, load::ModelConfig& config) {
  const int64_t window = reader.Int("attention.sliding_window", 0);
  config.layer_windows.assign(static_cast<size_t>(config.layers), ClampCount(window));
}

absl::StatusOr<ModelConfig> ModelConfigFromGguf(const load::GgufFile& file, const std::string& path,
                                                Families families) {
  QUIRE_ASSIGN_OR_RETURN(std::string_view name, file.String("general.architecture"));
  std::vector<absl::string_view> served;
  for (const Family* family : families) {
    const GgufForm& form = family->gguf;
    if (form.architecture.empty()) continue;
    served.push_back(AbslView(form.architecture));
    if (!form.with_experts.empty()) served.push_back(AbslView(form.with_experts));
    if (name != form.architecture && (name.empty() || name != form.with_experts)) continue;
    GgufReader reader(file, name, path);
    ModelConfig config;
    config.family = family->name;
    config.interleaved_rope = form.interleaved_rope;
    ReadGgufCommon(reader, file, form, config);
    const bool layers_fit = config.layers >= 1 && config.layers <= load::kMaxLayers;
    if (reader.status().ok()) ReadGgufExperts(reader, file, form, config);
    if (reader.status().ok() && layers_fit) form.read(reader, config);
    QUIRE_RETURN_IF_ERROR(reader.status());
    return load::CheckedModelConfig(std::move(config), path);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": general.architecture \"", AbslView(name), "\" is not served",
      AbslView(WhyNotServed(name)), "; served in GGUF are ", absl::StrJoin(served, ", ")));
}

}  // namespace quire::model
