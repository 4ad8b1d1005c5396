// ModelConfig from Hugging Face's config.json, in the older and the newer spelling of its rope
// settings.
#include <cmath>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/load/model_config.h"

namespace quire::load {
namespace {

constexpr int64_t kAnyInt = int64_t{1} << 30;  // CheckModelConfig has the true bounds

// Reads members with a default; the first error wins and is returned by status().
class Reader {
 public:
  Reader(const json::Object& object, const std::string& path) : object_(object), path_(path) {}

  bool Has(std::string_view key) const { return json::Find(object_, key) != nullptr; }
  // Also when its value is null.
  bool Mentions(std::string_view key) const { return object_.contains(json::BoostView(key)); }
  int64_t RequiredInt(std::string_view key) {
    if (!Has(key)) Fail(absl::StrCat(AbslView(key), " is missing"));
    return Int(key, 0);
  }
  int64_t Int(std::string_view key, int64_t otherwise) {
    const json::Value* value = json::Find(object_, key);
    if (value == nullptr) return otherwise;
    const int64_t result = Take(json::AsInt(*value, key), otherwise);
    if (result < -kAnyInt || result > kAnyInt)
      Fail(absl::StrCat(AbslView(key), " is out of range: ", result));
    return status_.ok() ? result : otherwise;
  }
  double Double(std::string_view key, double otherwise) {
    const json::Value* value = json::Find(object_, key);
    return value == nullptr ? otherwise : Take(json::AsDouble(*value, key), otherwise);
  }
  bool Bool(std::string_view key, bool otherwise) {
    const json::Value* value = json::Find(object_, key);
    return value == nullptr ? otherwise : Take(json::AsBool(*value, key), otherwise);
  }
  std::string String(std::string_view key, std::string_view otherwise) {
    const json::Value* value = json::Find(object_, key);
    return std::string(value == nullptr ? otherwise : Take(json::AsString(*value, key), otherwise));
  }
  // Null when absent.
  const json::Object* ObjectAt(std::string_view key) {
    const json::Value* value = json::Find(object_, key);
    return value == nullptr ? nullptr : Take(json::AsObject(*value, key), nullptr);
  }
  const json::Array* ArrayAt(std::string_view key) {
    const json::Value* value = json::Find(object_, key);
    return value == nullptr ? nullptr : Take(json::AsArray(*value, key), nullptr);
  }
  void Fail(std::string_view what) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(absl::StrCat(path_, ": ", AbslView(what)));
  }
  const absl::Status& status() const { return status_; }
  const std::string& path() const { return path_; }

 private:
  template <typename T, typename U>
  T Take(absl::StatusOr<T> result, U otherwise) {
    if (result.ok()) return *std::move(result);
    Fail(StatusMessage(result.status()));
    return otherwise;
  }

  const json::Object& object_;
  const std::string& path_;
  absl::Status status_;
};

// Fills in what the scaling object says, over what `rope` holds. `type` is its older spelling of
// rope_type.
void ReadScaling(Reader& reader, const json::Object& object, int64_t max_positions,
                 RopeConfig& rope) {
  Reader scaling(object, reader.path());
  const std::string type = scaling.String("rope_type", scaling.String("type", "default"));
  rope.theta = scaling.Double("rope_theta", rope.theta);
  if (scaling.Double("partial_rotary_factor", 1.0) != 1.0) {
    reader.Fail("partial_rotary_factor is not served, only 1 is");
  }
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama3;
  } else if (type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
  } else if (type != "default") {
    reader.Fail("rope type \"" + type +
                "\" is not served; served are default, linear, llama3 and yarn");
  }
  if (rope.scaling != RopeConfig::Scaling::kNone) {
    if (!scaling.Has("factor")) reader.Fail("the rope scaling \"" + type + "\" needs a factor");
    rope.factor = scaling.Double("factor", 1.0);
  }
  // Fields that a scaling does not use keep their defaults: equal ropes must be equal values.
  const bool yarn = rope.scaling == RopeConfig::Scaling::kYarn;
  const bool llama3 = rope.scaling == RopeConfig::Scaling::kLlama3;
  if (yarn || llama3) {
    constexpr std::string_view kOriginal = "original_max_position_embeddings";
    const double inner = scaling.Double(kOriginal, static_cast<double>(max_positions));
    rope.original_context = reader.Double(kOriginal, inner);  // some files have it one level up
  }
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
            ? YarnMagnitude(rope.factor, scale) / YarnMagnitude(rope.factor, scale_all)
            : YarnMagnitude(rope.factor);
    rope.attention_factor = scaling.Double("attention_factor", inferred);
  }
  if (!scaling.status().ok()) reader.Fail("rope: " + StatusMessage(scaling.status()));
}

// One rope for all layers. Newer files have rope_parameters; older ones rope_theta and
// rope_scaling.
void ReadRope(Reader& reader, ModelConfig& config) {
  config.rope.theta = reader.Double("rope_theta", config.rope.theta);
  if (reader.Double("partial_rotary_factor", 1.0) != 1.0) {
    reader.Fail("partial_rotary_factor is not served, only 1 is");
  }
  const json::Object* scaling = reader.ObjectAt("rope_scaling");
  if (scaling == nullptr || scaling->empty()) scaling = reader.ObjectAt("rope_parameters");
  if (scaling != nullptr) {
    if (json::Find(*scaling, "full_attention") != nullptr) {
      reader.Fail("rope_parameters per layer type are served for Gemma 3 only");
    }
    ReadScaling(reader, *scaling, config.max_positions, config.rope);
  }
  config.sliding_rope = config.rope;
}

// Gemma 3 has one rope for full layers, scaled, and one for sliding ones.
void ReadGemmaRope(Reader& reader, ModelConfig& config) {
  config.rope.theta = reader.Double("rope_theta", 1'000'000.0);
  config.sliding_rope.theta = reader.Double("rope_local_base_freq", 10'000.0);
  if (const json::Object* parameters = reader.ObjectAt("rope_parameters"); parameters != nullptr) {
    Reader nested(*parameters, reader.path());
    const json::Object* full = nested.ObjectAt("full_attention");
    const json::Object* sliding = nested.ObjectAt("sliding_attention");
    if (full != nullptr) ReadScaling(reader, *full, config.max_positions, config.rope);
    if (sliding != nullptr)
      ReadScaling(reader, *sliding, config.max_positions, config.sliding_rope);
    if (!nested.status().ok()) reader.Fail(StatusMessage(nested.status()));
  }
  if (const json::Object* scaling = reader.ObjectAt("rope_scaling"); scaling != nullptr) {
    ReadScaling(reader, *scaling, config.max_positions, config.rope);
  }
}

void ReadActivation(Reader& reader, std::string_view key, std::string_view served,
                    ModelConfig& config) {
  const std::string name = reader.String(key, served);
  if (name != served) {
    reader.Fail(absl::StrCat(AbslView(key), " \"", name, "\" is not served for ", config.family,
                             "; \"", AbslView(served), "\" is"));
  }
}

// `windowed(i)` says whether layer i slides when the file does not list layer_types.
template <typename Windowed>
void ReadWindows(Reader& reader, int64_t window, Windowed windowed, ModelConfig& config) {
  const json::Array* types = reader.ArrayAt("layer_types");
  if (config.layers < 1 || config.layers > kMaxLayers) return;  // CheckModelConfig refuses it
  if (types != nullptr && types->size() != static_cast<size_t>(config.layers)) {
    reader.Fail(
        absl::StrCat("layer_types has ", types->size(), " entries for ", config.layers, " layers"));
    return;
  }
  for (int i = 0; i < config.layers; ++i) {
    bool sliding = windowed(i);
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

void ReadCommon(Reader& reader, ModelConfig& config) {
  // Image-and-text checkpoints of Gemma 3 leave out what equals the family's defaults.
  const bool gemma = config.family == "gemma3";
  const auto read = [&](std::string_view key, int64_t of_gemma) {
    return static_cast<int>(gemma ? reader.Int(key, of_gemma) : reader.RequiredInt(key));
  };
  config.vocab_size = read("vocab_size", 262'208);
  config.hidden_size = static_cast<int>(reader.RequiredInt("hidden_size"));
  config.layers = static_cast<int>(reader.RequiredInt("num_hidden_layers"));
  config.heads = read("num_attention_heads", 8);
  config.kv_heads = static_cast<int>(reader.Int("num_key_value_heads", gemma ? 4 : config.heads));
  const int64_t divided = config.heads > 0 ? config.hidden_size / config.heads : 0;
  config.head_dim = static_cast<int>(reader.Int("head_dim", divided));
  config.embedding_size = config.hidden_size;
  if (config.head_dim > 0)
    config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
}

void ReadGated(Reader& reader, int64_t default_positions, ModelConfig& config) {
  config.intermediate_size = static_cast<int>(reader.RequiredInt("intermediate_size"));
  config.max_positions = static_cast<int>(reader.Int("max_position_embeddings", default_positions));
  config.norm_epsilon = reader.Double("rms_norm_eps", 1e-6);
  config.tied_embeddings = reader.Bool("tie_word_embeddings", config.family == "gemma3");
}

void ReadLlama(Reader& reader, ModelConfig& config) {
  ReadGated(reader, 2'048, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, config);
  ReadWindows(
      reader, 0, [](int) { return false; }, config);
}

void ReadMistral(Reader& reader, ModelConfig& config) {
  ReadGated(reader, 131'072, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadRope(reader, config);
  // Absent means the family's default, null means none.
  const int64_t window =
      reader.Int("sliding_window", reader.Mentions("sliding_window") ? 0 : 4'096);
  ReadWindows(
      reader, window, [window](int) { return window > 0; }, config);
}

void ReadQwen(Reader& reader, ModelConfig& config) {
  if (config.family == "qwen3") {
    config.head_dim = static_cast<int>(reader.Int("head_dim", 128));
    config.attention_scale =
        config.head_dim > 0 ? 1.0 / std::sqrt(static_cast<double>(config.head_dim)) : 0.0;
    config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  } else {
    config.qkv_bias = true;
  }
  ReadGated(reader, 32'768, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadRope(reader, config);
  const bool slides = reader.Bool("use_sliding_window", false);
  const int64_t window = slides ? reader.Int("sliding_window", 4'096) : 0;
  const int64_t first = reader.Int("max_window_layers", 28);
  ReadWindows(
      reader, window, [=](int i) { return slides && window > 0 && i >= first; }, config);
}

void ReadGemma3(Reader& reader, ModelConfig& config) {
  config.head_dim = static_cast<int>(reader.Int("head_dim", 256));
  ReadGated(reader, 131'072, config);
  config.activation = ModelConfig::Activation::kGeluTanh;
  ReadActivation(reader, "hidden_activation", "gelu_pytorch_tanh", config);
  if (reader.Bool("use_bidirectional_attention", false)) {
    reader.Fail("use_bidirectional_attention is not served");
  }
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  const double scalar = reader.Double("query_pre_attn_scalar", 256.0);
  config.attention_scale = scalar > 0.0 ? 1.0 / std::sqrt(scalar) : 0.0;
  config.attention_softcap = reader.Double("attn_logit_softcapping", 0.0);
  config.logit_softcap = reader.Double("final_logit_softcapping", 0.0);
  config.norm_weight_offset = 1.0;
  ReadGemmaRope(reader, config);
  const int64_t pattern =
      reader.Int("sliding_window_pattern", reader.Int("_sliding_window_pattern", 6));
  if (pattern < 1) reader.Fail("sliding_window_pattern must be at least 1");
  ReadWindows(
      reader, reader.Int("sliding_window", 4'096),
      [pattern](int i) { return pattern >= 1 && (i + 1) % pattern != 0; }, config);
}

void ReadOpt(Reader& reader, ModelConfig& config) {
  config.intermediate_size = static_cast<int>(reader.RequiredInt("ffn_dim"));
  config.max_positions = static_cast<int>(reader.Int("max_position_embeddings", 2'048));
  config.norm_epsilon = 1e-5;  // PyTorch's LayerNorm default; the file has no key for it
  config.tied_embeddings = reader.Bool("tie_word_embeddings", true);
  config.activation = ModelConfig::Activation::kRelu;
  ReadActivation(reader, "activation_function", "relu", config);
  config.qkv_bias = config.output_bias = config.mlp_bias = reader.Bool("enable_bias", true);
  config.embedding_size = static_cast<int>(reader.Int("word_embed_proj_dim", config.hidden_size));
  config.norm_before = reader.Bool("do_layer_norm_before", true);
  config.final_norm = config.norm_before && !reader.Bool("_remove_final_layer_norm", false);
  config.norm_affine = reader.Bool("layer_norm_elementwise_affine", true);
  if (config.heads > 0 && config.hidden_size % config.heads != 0) {
    reader.Fail("hidden_size must be a multiple of num_attention_heads");
  }
  ReadWindows(
      reader, 0, [](int) { return false; }, config);
}

struct Architecture {
  std::string_view name;        // in "architectures"
  std::string_view model_type;  // where "architectures" is absent
  const char* family;
  void (*read)(Reader& reader, ModelConfig& config);
};

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", "llama", "llama", ReadLlama},
    {"MistralForCausalLM", "mistral", "mistral", ReadMistral},
    {"Qwen2ForCausalLM", "qwen2", "qwen2", ReadQwen},
    {"Qwen3ForCausalLM", "qwen3", "qwen3", ReadQwen},
    {"Gemma3ForCausalLM", "gemma3_text", "gemma3", ReadGemma3},
    {"Gemma3ForConditionalGeneration", "gemma3", "gemma3", ReadGemma3},
    {"OPTForCausalLM", "opt", "opt", ReadOpt},
};

// Image-and-text checkpoints have it beside their text_config, others may have it inside.
void RefuseQuantised(Reader& reader) {
  if (reader.Has("quantization_config")) {
    reader.Fail("quantization_config is not served; give the unquantised model or a GGUF file");
  }
}

// The architecture's name as the file gives it, or its model_type.
std::string ArchitectureName(Reader& reader) {
  const json::Array* names = reader.ArrayAt("architectures");
  if (names != nullptr && !names->empty() && (*names)[0].is_string()) {
    return std::string(json::View((*names)[0].as_string()));
  }
  return reader.String("model_type", "");
}

}  // namespace

absl::StatusOr<ModelConfig> ModelConfigFromJson(const json::Object& config,
                                                const std::string& path) {
  Reader outer(config, path);
  const std::string name = ArchitectureName(outer);
  QUIRE_RETURN_IF_ERROR(outer.status());
  for (const Architecture& architecture : kArchitectures) {
    if (name != architecture.name && name != architecture.model_type) continue;
    // Image-and-text checkpoints keep the language model's settings one level down.
    const json::Object* text = outer.ObjectAt("text_config");
    RefuseQuantised(outer);
    QUIRE_RETURN_IF_ERROR(outer.status());
    Reader reader(text != nullptr ? *text : config, path);
    RefuseQuantised(reader);
    ModelConfig result;
    result.family = architecture.family;
    ReadCommon(reader, result);
    if (reader.status().ok()) architecture.read(reader, result);
    QUIRE_RETURN_IF_ERROR(reader.status());
    StretchContext(result);
    QUIRE_RETURN_IF_ERROR(Annotate(CheckModelConfig(result), path));
    return result;
  }
  return UnknownArchitecture(path, name);
}

}  // namespace quire::load
