// ModelConfig from the metadata of a GGUF file; what the metadata leaves out is read off the
// tensors.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/load/model_config.h"

namespace quire::load {
namespace {

// Reads "<architecture>.<key>"; the first error wins and is returned by status().
class Reader {
 public:
  // `path` is for messages, and outlives this.
  Reader(const GgufFile& file, std::string_view architecture, const std::string& path)
      : file_(file), prefix_(std::string(architecture) + "."), path_(path) {}

  bool Has(std::string_view key) const { return file_.Has(prefix_ + std::string(key)); }
  int64_t RequiredInt(std::string_view key) {
    return Take(file_.Integer(prefix_ + std::string(key)), int64_t{0});
  }
  int64_t Int(std::string_view key, int64_t otherwise) {
    return Has(key) ? RequiredInt(key) : otherwise;
  }
  double RequiredDouble(std::string_view key) {
    return Take(file_.Number(prefix_ + std::string(key)), 0.0);
  }
  double Double(std::string_view key, double otherwise) {
    return Has(key) ? RequiredDouble(key) : otherwise;
  }
  std::string String(std::string_view key, std::string_view otherwise) {
    if (!Has(key)) return std::string(otherwise);
    return std::string(Take(file_.String(prefix_ + std::string(key)), otherwise));
  }
  // A number, or an array of one equal number per layer.
  int64_t PerLayerInt(std::string_view key, int64_t otherwise) {
    const std::string full = prefix_ + std::string(key);
    absl::StatusOr<GgufArray> array = file_.Array(full);
    if (!array.ok()) return Int(key, otherwise);
    absl::StatusOr<std::vector<int64_t>> values = array->Integers(kMaxGgufLayers);
    if (array->count > kMaxGgufLayers) {
      Fail(absl::StrCat(AbslView(key), ": ", values.status().message()));
      return otherwise;
    }
    if (!values.ok() || values->empty() ||
        std::any_of(values->begin(), values->end(),
                    [&](int64_t v) { return v != values->front(); })) {
      Fail(absl::StrCat(AbslView(key), ": layers that differ are not served"));
      return otherwise;
    }
    return values->front();
  }
  // `what` opens with the key, less its architecture.
  void Fail(std::string_view what) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(absl::StrCat(path_, ": ", prefix_, AbslView(what)));
  }
  const absl::Status& status() const { return status_; }

 private:
  template <typename T, typename U>
  T Take(absl::StatusOr<T> result, U otherwise) {
    if (result.ok()) return *std::move(result);
    if (status_.ok()) status_ = absl::InvalidArgumentError(result.status().message());
    return T(otherwise);
  }

  const GgufFile& file_;
  std::string prefix_;
  const std::string& path_;
  absl::Status status_;
};

int Clamp(int64_t value) {
  return static_cast<int>(std::clamp<int64_t>(value, -1, int64_t{1} << 30));
}

void ReadRope(Reader& reader, ModelConfig& config) {
  config.rope.theta = reader.Double("rope.freq_base", 10'000.0);
  const std::string type = reader.String("rope.scaling.type", "none");
  // Before rope.scaling.* there was only a linear scale.
  const double old_scale = reader.Double("rope.scale_linear", 1.0);
  config.rope.factor = reader.Double("rope.scaling.factor", old_scale);
  const bool named = reader.Has("rope.scaling.type");
  if (type == "linear" || (!named && config.rope.factor != 1.0 && config.rope.factor != 0.0)) {
    config.rope.scaling = RopeConfig::Scaling::kLinear;
  } else if (type == "yarn") {
    config.rope.scaling = RopeConfig::Scaling::kYarn;
    config.rope.original_context = reader.Double("rope.scaling.original_context_length",
                                                 static_cast<double>(config.max_positions));
    config.rope.attention_factor =
        YarnMagnitude(config.rope.factor) * reader.Double("rope.scaling.attn_factor", 1.0);
  } else if (type == "none") {
    config.rope.factor = 1.0;
  } else {
    reader.Fail(absl::StrCat("rope.scaling.type \"", type,
                             "\" is not served; served are none, linear and yarn"));
  }
  config.sliding_rope = config.rope;
  const int64_t rotary = reader.Int("rope.dimension_count", config.head_dim);
  if (rotary != config.head_dim) {
    reader.Fail(absl::StrCat("rope.dimension_count is ", rotary, ", served is the head dimension ",
                             config.head_dim));
  }
}

void ReadCommon(Reader& reader, const GgufFile& file, ModelConfig& config) {
  config.hidden_size = Clamp(reader.RequiredInt("embedding_length"));
  config.embedding_size = config.hidden_size;
  config.intermediate_size = Clamp(reader.PerLayerInt("feed_forward_length", 0));
  config.layers = Clamp(reader.RequiredInt("block_count"));
  config.heads = Clamp(reader.PerLayerInt("attention.head_count", 0));
  config.kv_heads = Clamp(reader.PerLayerInt("attention.head_count_kv", config.heads));
  config.max_positions = Clamp(reader.RequiredInt("context_length"));
  config.norm_epsilon = reader.RequiredDouble("attention.layer_norm_rms_epsilon");
  const int64_t divided = config.heads > 0 ? config.hidden_size / config.heads : 0;
  config.head_dim = Clamp(reader.Int("attention.key_length", divided));
  const int64_t value_length = reader.Int("attention.value_length", config.head_dim);
  if (value_length != config.head_dim) {
    reader.Fail("attention.value_length differs from key_length: not served");
  }
  if (reader.Int("expert_count", 0) > 0) {
    reader.Fail("expert_count: mixture-of-experts models are not served");
  }
  if (config.head_dim > 0)
    config.attention_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  // The table of embeddings decides, not the vocabulary: it may be padded.
  if (const Tensor* table = file.tensors().Find("token_embd.weight");
      table != nullptr && table->shape.size() == 2) {
    config.vocab_size = Clamp(table->shape[0]);
  }
  config.tied_embeddings = file.tensors().Find("output.weight") == nullptr;
  config.qkv_bias = file.tensors().Find("blk.0.attn_q.bias") != nullptr;
  config.output_bias = file.tensors().Find("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.tensors().Find("blk.0.ffn_gate.bias") != nullptr;
  ReadRope(reader, config);
}

void ReadPlain(Reader& reader, ModelConfig& config) {
  const int64_t window = reader.Int("attention.sliding_window", 0);
  if (config.layers < 1 || config.layers > kMaxLayers) return;  // CheckModelConfig refuses it
  config.layer_windows.assign(static_cast<size_t>(config.layers), Clamp(window));
}

void ReadLlama(Reader& reader, ModelConfig& config) {
  config.interleaved_rope = true;
  ReadPlain(reader, config);
}

void ReadGemma3(Reader& reader, ModelConfig& config) {
  config.activation = ModelConfig::Activation::kGeluTanh;
  config.logit_softcap = reader.Double("final_logit_softcapping", 0.0);
  config.sliding_rope = RopeConfig{};
  config.sliding_rope.theta = reader.Double("rope.freq_base_swa", 10'000.0);
  // The 27B model scales by the hidden size per head; its depth is how GGUF files tell it.
  constexpr int kLayersOf27B = 62;
  if (config.layers == kLayersOf27B && config.heads > 0) {
    config.attention_scale =
        1.0 / std::sqrt(static_cast<double>(config.hidden_size) / config.heads);
  }
  const int64_t window = reader.Int("attention.sliding_window", 0);
  const int64_t pattern = reader.Int("attention.sliding_window_pattern", 6);
  if (pattern < 1) {
    reader.Fail("attention.sliding_window_pattern must be at least 1");
    return;
  }
  if (config.layers < 1 || config.layers > kMaxLayers) return;  // CheckModelConfig refuses it
  for (int i = 0; i < config.layers; ++i) {
    config.layer_windows.push_back((i + 1) % pattern != 0 ? Clamp(window) : 0);
  }
}

struct Architecture {
  std::string_view name;
  const char* family;
  void (*read)(Reader& reader, ModelConfig& config);
};

constexpr Architecture kArchitectures[] = {
    {"llama", "llama", ReadLlama},
    {"qwen2", "qwen2", ReadPlain},
    {"qwen3", "qwen3", ReadPlain},
    {"gemma3", "gemma3", ReadGemma3},
};

}  // namespace

absl::StatusOr<ModelConfig> ModelConfigFromGguf(const GgufFile& file, const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(std::string_view name, file.String("general.architecture"));
  for (const Architecture& architecture : kArchitectures) {
    if (name != architecture.name) continue;
    Reader reader(file, name, path);
    ModelConfig config;
    config.family = architecture.family;
    ReadCommon(reader, file, config);
    if (reader.status().ok()) architecture.read(reader, config);
    QUIRE_RETURN_IF_ERROR(reader.status());
    StretchContext(config);
    QUIRE_RETURN_IF_ERROR(Annotate(CheckModelConfig(config), path));
    return config;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": general.architecture \"", AbslView(name),
                   "\" is not served; served in GGUF are llama (Llama 2 and 3, Mistral), qwen2 "
                   "(and Qwen2.5), qwen3 and gemma3"));
}

}  // namespace quire::load
