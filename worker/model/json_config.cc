#include "worker/model/json_config.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_join.h"
#include "kernels/kv_layout.h"
#include "worker/model/family.h"

namespace quire::model {
namespace {

using load::ModelConfig;
using Scaling = load::RopeConfig::Scaling;

void ReadCommon(const JsonForm& form, JsonReader& reader, ModelConfig& config) {
  const auto read = [&](std::string_view key, int64_t otherwise) {
    return static_cast<int>(otherwise != 0 ? reader.Int(key, otherwise) : reader.RequiredInt(key));
  };
  config.vocab_size = read("vocab_size", form.vocab_size);
  config.hidden_size = read("hidden_size", 0);
  config.layers = form.listed_layers ? static_cast<int>(reader.Int("num_hidden_layers", 0))
                                     : read("num_hidden_layers", 0);
  config.heads = read("num_attention_heads", form.heads);
  config.kv_heads = static_cast<int>(
      reader.Int("num_key_value_heads", form.kv_heads != 0 ? form.kv_heads : config.heads));
  const int divided = config.heads > 0 ? config.hidden_size / config.heads : 0;
  config.head_dim =
      static_cast<int>(reader.Int("head_dim", form.head_dim != 0 ? form.head_dim : divided));
  config.embedding_size = config.hidden_size;
  if (config.head_dim > 0)
    config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  config.intermediate_size = read(form.width_key, form.width);
  config.max_positions = read("max_position_embeddings", form.max_positions);
  config.norm_epsilon = form.epsilon_key.empty() ? 1e-5 : reader.Double(form.epsilon_key, 1e-6);
  config.tied_embeddings = reader.Bool("tie_word_embeddings", form.tied_embeddings);
  using Activation = ModelConfig::Activation;
  config.activation = form.activation == "silu"    ? Activation::kSilu
                      : form.activation == "relu"  ? Activation::kRelu
                      : form.activation == "relu2" ? Activation::kReluSquared
                                                   : Activation::kGeluTanh;
  const std::string activation = reader.String(form.activation_key, form.activation);
  if (activation != form.activation) {
    reader.Fail(absl::StrCat(AbslView(form.activation_key), " \"", activation,
                             "\" is not served for ", config.family, "; \"",
                             AbslView(form.activation), "\" is"));
  }
  config.interleaved_rope = form.interleaved_rope;
  config.qkv_bias = form.qkv_bias;
  if (form.attention_bias) {
    config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  }
  if (form.mlp_bias) config.mlp_bias = reader.Bool("mlp_bias", false);
  config.rotary = form.rope != nullptr;
}

// The architecture's name as the file gives it, or its model_type.
std::string ArchitectureName(JsonReader& reader) {
  const json::Array* names = reader.ArrayAt("architectures");
  if (names != nullptr && !names->empty() && (*names)[0].is_string()) {
    return std::string(json::View((*names)[0].as_string()));
  }
  return reader.String("model_type", "");
}

}  // namespace

std::vector<double> JsonReader::Doubles(std::string_view key) {
  std::vector<double> numbers;
  const json::Array* array = ArrayAt(key);
  if (array == nullptr) return numbers;
  if (array->size() > load::kMaxHeadDimension / 2) {
    Fail(absl::StrCat(AbslView(key), " has ", array->size(), " numbers, at most ",
                      load::kMaxHeadDimension / 2, " may be there"));
    return numbers;
  }
  for (const json::Value& value : *array) {
    const absl::StatusOr<double> number = json::AsDouble(value, key);
    if (!number.ok()) {
      Fail(StatusMessage(number.status()));
      return {};
    }
    numbers.push_back(Finite(key, *number));
  }
  return numbers;
}

absl::StatusOr<ModelConfig> ModelConfigFromJson(const json::Object& config, const std::string& path,
                                                Families families) {
  JsonReader outer(config, path);
  const std::string name = ArchitectureName(outer);
  QUIRE_RETURN_IF_ERROR(outer.status());
  std::vector<absl::string_view> served;
  for (const Family* family : families) {
    const JsonForm& form = family->json;
    served.push_back(AbslView(family->title));
    if (std::none_of(std::begin(form.names), std::end(form.names), [&name](const auto& own) {
          return !name.empty() && (name == own.architecture || name == own.model_type);
        })) {
      continue;
    }
    // Image-and-text checkpoints keep the language model's settings one level down.
    const json::Object* text = outer.ObjectAt("text_config");
    QUIRE_RETURN_IF_ERROR(outer.status());
    JsonReader reader(text != nullptr ? *text : config, path);
    ModelConfig result;
    result.family = family->name;
    ReadCommon(form, reader, result);
    if (text != nullptr && !reader.Has("tie_word_embeddings")) {
      result.tied_embeddings = outer.Bool("tie_word_embeddings", result.tied_embeddings);
    }
    if (form.rope != nullptr) form.rope(reader, result);
    if (form.read != nullptr) form.read(reader, result);
    if (result.layer_windows.empty()) {
      ReadWindows(reader, result, 0, [](int) { return false; });
    }
    QUIRE_RETURN_IF_ERROR(outer.status());
    QUIRE_RETURN_IF_ERROR(reader.status());
    return load::CheckedModelConfig(std::move(result), path);
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": architecture \"", name,
                                                 "\" is not served", AbslView(WhyNotServed(name)),
                                                 "; served are ", absl::StrJoin(served, ", ")));
}

namespace {

// Where a file says nothing of them, its context and the original one decide.
void ReadLongRope(JsonReader& scaling, int64_t max_positions, load::RopeConfig& rope) {
  rope.short_factors = scaling.Doubles("short_factor");
  rope.long_factors = scaling.Doubles("long_factor");
  if (!(rope.original_context > 1.0)) {
    return scaling.Fail("longrope needs original_max_position_embeddings");
  }
  const double stretch =
      scaling.Double("factor", static_cast<double>(max_positions) / rope.original_context);
  const double inferred =
      stretch > 1.0 ? std::sqrt(1.0 + std::log(stretch) / std::log(rope.original_context)) : 1.0;
  rope.attention_factor = scaling.Double("attention_factor", inferred);
}

}  // namespace

void ReadScaling(JsonReader& reader, const json::Object& object, int64_t max_positions,
                 load::RopeConfig& rope) {
  JsonReader scaling(object, reader.path());
  // "type" is the older spelling.
  const std::string type = scaling.String("rope_type", scaling.String("type", "default"));
  rope.theta = scaling.Double("rope_theta", rope.theta);
  if (type == "linear") {
    rope.scaling = Scaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = Scaling::kLlama3;
  } else if (type == "longrope" || type == "su" || scaling.Has("long_factor")) {
    rope.scaling = Scaling::kLongRope;  // old files of Phi-3 call it su or yarn
  } else if (type == "yarn") {
    rope.scaling = Scaling::kYarn;
  } else if (type != "default") {
    reader.Fail("rope type \"" + type +
                "\" is not served; served are default, linear, llama3, longrope and yarn");
  }
  if (rope.scaling != Scaling::kNone && rope.scaling != Scaling::kLongRope) {
    if (!scaling.Has("factor")) reader.Fail("the rope scaling \"" + type + "\" needs a factor");
    rope.factor = scaling.Double("factor", 1.0);
  }
  // Fields that a scaling does not use keep their defaults: equal ropes must be equal values.
  const bool yarn = rope.scaling == Scaling::kYarn;
  const bool llama3 = rope.scaling == Scaling::kLlama3;
  if (yarn || llama3 || rope.scaling == Scaling::kLongRope) {
    constexpr std::string_view kOriginal = "original_max_position_embeddings";
    const double inner = scaling.Double(kOriginal, static_cast<double>(max_positions));
    rope.original_context = reader.Double(kOriginal, inner);  // some files have it one level up
  }
  if (rope.scaling == Scaling::kLongRope) ReadLongRope(scaling, max_positions, rope);
  if (llama3) {
    rope.low_frequency_factor = scaling.Double("low_freq_factor", rope.low_frequency_factor);
    rope.high_frequency_factor = scaling.Double("high_freq_factor", rope.high_frequency_factor);
  }
  if (yarn) {
    rope.beta_fast = scaling.Double("beta_fast", rope.beta_fast);
    rope.beta_slow = scaling.Double("beta_slow", rope.beta_slow);
    rope.truncate = scaling.Bool("truncate", rope.truncate);
    const double scale = scaling.Double("mscale", 0.0);
    const double scale_all = scaling.Double("mscale_all_dim", 0.0);
    const double inferred =
        scale != 0.0 && scale_all != 0.0
            ? load::YarnMagnitude(rope.factor, scale) / load::YarnMagnitude(rope.factor, scale_all)
            : load::YarnMagnitude(rope.factor);
    rope.attention_factor = scaling.Double("attention_factor", inferred);
    if (scale_all != 0.0) rope.score_magnitude = load::YarnMagnitude(rope.factor, scale_all);
  }
  if (!scaling.status().ok()) reader.Fail("rope: " + StatusMessage(scaling.status()));
}

namespace {

// Null when there is none.
const json::Object* FindScaling(JsonReader& reader) {
  const json::Object* scaling = reader.ObjectAt("rope_scaling");
  return scaling == nullptr || scaling->empty() ? reader.ObjectAt("rope_parameters") : scaling;
}

void ReadTurning(JsonReader& reader, load::ModelConfig& config) {
  config.rope.theta = reader.Double("rope_theta", config.rope.theta);
  if (const json::Object* scaling = FindScaling(reader); scaling != nullptr) {
    if (json::Find(*scaling, "full_attention") != nullptr) {
      reader.Fail("rope_parameters per layer type are not served for " + config.family);
    }
    ReadScaling(reader, *scaling, config.max_positions, config.rope);
  }
  config.sliding_rope = config.rope;
}

}  // namespace

void RefusePartialRotation(JsonReader& reader, const json::Object& object) {
  JsonReader nested(object, reader.path());
  if (nested.Double("partial_rotary_factor", 1.0) != 1.0 || !nested.status().ok()) {
    reader.Fail("partial_rotary_factor is not served for this family, only 1 is");
  }
}

void ReadRopesByLayerType(JsonReader& reader, load::ModelConfig& config) {
  if (const json::Object* parameters = reader.ObjectAt("rope_parameters"); parameters != nullptr) {
    JsonReader nested(*parameters, reader.path());
    const json::Object* full = nested.ObjectAt("full_attention");
    const json::Object* sliding = nested.ObjectAt("sliding_attention");
    for (const json::Object* object : {full, sliding}) {
      if (object != nullptr) RefusePartialRotation(reader, *object);
    }
    if (full != nullptr) ReadScaling(reader, *full, config.max_positions, config.rope);
    if (sliding != nullptr)
      ReadScaling(reader, *sliding, config.max_positions, config.sliding_rope);
    if (!nested.status().ok()) reader.Fail(StatusMessage(nested.status()));
  }
  if (const json::Object* scaling = reader.ObjectAt("rope_scaling"); scaling != nullptr) {
    ReadScaling(reader, *scaling, config.max_positions, config.rope);
  }
}

void ReadRope(JsonReader& reader, load::ModelConfig& config) {
  RefusePartialRotation(reader, reader.object());
  if (const json::Object* scaling = FindScaling(reader); scaling != nullptr) {
    RefusePartialRotation(reader, *scaling);
  }
  ReadTurning(reader, config);
}

void ReadPartialRope(JsonReader& reader, load::ModelConfig& config, double otherwise) {
  double factor = reader.Double("partial_rotary_factor", otherwise);
  if (const json::Object* scaling = FindScaling(reader); scaling != nullptr) {
    JsonReader nested(*scaling, reader.path());
    factor = nested.Double("partial_rotary_factor", factor);
    if (!nested.status().ok()) reader.Fail("rope: " + StatusMessage(nested.status()));
  }
  if (!(factor > 0.0 && factor <= 1.0)) {
    reader.Fail(absl::StrCat("partial_rotary_factor is ", factor, ", it must lie in (0, 1]"));
    return;
  }
  if (factor < 1.0) {
    config.rotary_dim = static_cast<int>(config.head_dim * factor);
    if (config.rotary_dim == 0) {
      reader.Fail(absl::StrCat("partial_rotary_factor is ", factor, ", it leaves nothing of ",
                               config.head_dim, " elements of a head to turn"));
    }
  }
  ReadTurning(reader, config);
}

void ReadWindows(JsonReader& reader, load::ModelConfig& config, int64_t window,
                 const std::function<bool(int)>& slides) {
  const json::Array* types = reader.ArrayAt("layer_types");
  if (config.layers < 1 || config.layers > load::kMaxLayers) return;  // CheckModelConfig refuses it
  if (types != nullptr && types->size() != static_cast<size_t>(config.layers)) {
    reader.Fail(
        absl::StrCat("layer_types has ", types->size(), " entries for ", config.layers, " layers"));
    return;
  }
  for (int i = 0; i < config.layers; ++i) {
    bool sliding = slides(i);
    if (types != nullptr) {
      absl::StatusOr<std::string_view> type =
          json::AsString((*types)[static_cast<size_t>(i)], "layer_types");
      if (!type.ok() || (*type != "sliding_attention" && *type != "full_attention")) {
        reader.Fail("layer_types may hold \"full_attention\" and \"sliding_attention\" only");
        return;
      }
      sliding = *type == "sliding_attention";
    }
    if (sliding && window <= 0) {
      reader.Fail("sliding_window must be above 0 where layers slide");
      return;
    }
    config.layer_windows.push_back(sliding ? static_cast<int>(window) : 0);
  }
}

void ReadRecurrentLayers(JsonReader& reader, load::ModelConfig& config,
                         const std::vector<std::string_view>& recurrent,
                         const std::function<bool(int)>& recurs) {
  const json::Array* types = reader.ArrayAt("layer_types");
  if (config.layers < 1 || config.layers > load::kMaxLayers) return;  // CheckModelConfig refuses it
  if (types != nullptr && types->size() != static_cast<size_t>(config.layers)) {
    return reader.Fail(
        absl::StrCat("layer_types has ", types->size(), " entries for ", config.layers, " layers"));
  }
  for (int i = 0; i < config.layers; ++i) {
    bool keeps_state = recurs(i);
    if (types != nullptr) {
      absl::StatusOr<std::string_view> type =
          json::AsString((*types)[static_cast<size_t>(i)], "layer_types");
      keeps_state = type.ok() && std::ranges::count(recurrent, *type) > 0;
      if (!keeps_state && (!type.ok() || (*type != "full_attention" && *type != "attention"))) {
        return reader.Fail(absl::StrCat("layer_types may hold \"full_attention\" and \"",
                                        AbslView(recurrent.front()), "\" only"));
      }
    }
    config.layer_windows.push_back(keeps_state ? kernels::kNoKeys : 0);
  }
}

void ReadExperts(JsonReader& reader, load::ModelConfig& config, const ExpertKeys& keys) {
  load::ExpertConfig& experts = config.experts;
  experts.count = static_cast<int>(reader.RequiredInt(keys.count));
  experts.width = static_cast<int>(reader.RequiredInt(keys.width));
  experts.rule.chosen = static_cast<int>(reader.RequiredInt(keys.chosen));
  experts.rule.renormalise = reader.Bool("norm_topk_prob", keys.renormalise);
  if (experts.count < 1) reader.Fail(absl::StrCat(AbslView(keys.count), " must be at least 1"));
  const int64_t step = reader.Int("decoder_sparse_step", 1);
  if (step < 1) return reader.Fail("decoder_sparse_step must be at least 1");
  if (config.layers < 1 || config.layers > load::kMaxLayers) return;  // CheckModelConfig refuses it
  for (int i = 0; i < config.layers; ++i) experts.layers.push_back((i + 1) % step == 0);
  const json::Array* dense = reader.ArrayAt("mlp_only_layers");
  for (size_t i = 0; dense != nullptr && i < dense->size(); ++i) {
    const absl::StatusOr<int64_t> layer = json::AsInt((*dense)[i], "mlp_only_layers");
    if (!layer.ok() || *layer < 0 || *layer >= config.layers) {
      reader.Fail(
          absl::StrCat("mlp_only_layers may hold numbers of layers from 0 to ", config.layers - 1));
      return;
    }
    experts.layers[static_cast<size_t>(*layer)] = false;
  }
}

}  // namespace quire::model
