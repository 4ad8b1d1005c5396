#include "cli/models/weight_gguf.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <utility>

#include "cli/models/gguf_bytes.h"
#include "cli/models/weight_layouts.h"

namespace quire::cli {
namespace {

constexpr int32_t kNormalToken = 1, kControlToken = 3;

uint32_t NumberOf(WeightType type) {
  if (type == WeightType::kQ4K) return 12;
  if (type == WeightType::kF16) return 1;
  return type == WeightType::kQ40 ? 2 : 0;
}

void AddSettings(const ModelShape& shape, int layers, GgufBytes& out) {
  const std::string family(GgufFamily(shape));
  const auto number = [&](const char* key, int value) {
    out.Key(family + "." + key, GgufValueType::kUint32);
    out.Number(static_cast<uint32_t>(value));
  };
  const auto real = [&](const char* key, double value) {
    out.Key(family + "." + key, GgufValueType::kFloat32);
    out.Float(static_cast<float>(value));
  };
  out.Key("general.architecture", GgufValueType::kString);
  out.String(family);
  out.Key("general.name", GgufValueType::kString);
  out.String(shape.name);
  number("context_length", shape.positions);
  number("embedding_length", shape.hidden);
  number("block_count", layers);
  number("feed_forward_length", shape.inner);
  number("attention.head_count", shape.heads);
  number("attention.head_count_kv", shape.kv_heads);
  AddFamilySettings(shape, out);
  real("rope.freq_base", shape.theta);
  real("attention.layer_norm_rms_epsilon", shape.norm_epsilon);
}

void AddTokenizer(const ModelShape& shape, GgufBytes& out) {
  const auto text = [&](const char* key, std::string_view value) {
    out.Key(key, GgufValueType::kString);
    out.String(value);
  };
  const auto id = [&](const char* key, int32_t value) {
    out.Key(key, GgufValueType::kUint32);
    out.Number(static_cast<uint32_t>(value));
  };
  text("tokenizer.ggml.model", "gpt2");
  text("tokenizer.ggml.pre", "gpt-2");
  out.Array("tokenizer.ggml.tokens", GgufValueType::kString, shape.vocabulary);
  for (int32_t token = 0; token < shape.vocabulary; ++token) out.String(TokenText(shape, token));
  out.Array("tokenizer.ggml.token_type", GgufValueType::kInt32, shape.vocabulary);
  std::vector<int32_t> types(static_cast<size_t>(shape.vocabulary), kNormalToken);
  for (const SpecialToken& special : shape.specials) {
    types[static_cast<size_t>(special.id)] = kControlToken;
  }
  for (const int32_t type : types) out.Number(type);
  out.Array("tokenizer.ggml.merges", GgufValueType::kString, 0);
  id("tokenizer.ggml.bos_token_id", shape.begin);
  id("tokenizer.ggml.eos_token_id", shape.end);
  text("tokenizer.chat_template", kChatTemplate);
}

// "model.layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight".
std::string NameOf(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kWhole[] = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"}};
  constexpr std::pair<std::string_view, std::string_view> kParts[] = {
      {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const auto& [from, to] : kWhole) {
    if (name == from) return std::string(to);
  }
  const size_t number = std::string_view("model.layers.").size();
  const size_t part = name.find('.', number) + 1;
  const size_t end = name.rfind('.');
  for (const auto& [from, to] : kParts) {
    if (name.substr(part, end - part) == from) {
      return "blk." + name.substr(number, part - number) + std::string(to) + name.substr(end);
    }
  }
  return name;
}

// The divisors of Llama 3's frequencies.
std::vector<float> FrequencyFactors(const ModelShape& shape) {
  std::vector<float> factors;
  if (shape.rope_factor <= 0) return factors;
  constexpr double kLow = 1.0, kHigh = 4.0;  // turns within the original context
  for (int i = 0; i < shape.head_dim / 2; ++i) {
    const double turns = shape.rope_original / (2.0 * std::numbers::pi) *
                         std::pow(shape.theta, -2.0 * i / shape.head_dim);
    const double share = std::min(1.0, std::max(0.0, (turns - kLow) / (kHigh - kLow)));
    factors.push_back(static_cast<float>(1.0 / (share + (1.0 - share) / shape.rope_factor)));
  }
  return factors;
}

}  // namespace

WeightType QuantOf(int64_t cols) {
  return cols % BlockOf(WeightType::kQ4K).values == 0 ? WeightType::kQ4K : WeightType::kQ40;
}

WeightShard LayOutGguf(const ModelShape& shape, int layers, WeightType matrices) {
  WeightShard file;
  file.name = "model.gguf";
  file.offsets = {0};
  const std::vector<float> factors = FrequencyFactors(shape);
  const int64_t before = GgufAligned(static_cast<int64_t>(sizeof(float) * factors.size()));
  GgufBytes list;  // of tensors
  uint64_t count = 0;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& dims, uint32_t type,
                       int64_t offset) {
    list.String(name);
    list.Number(static_cast<uint32_t>(dims.size()));
    for (size_t i = dims.size(); i > 0; --i) list.Number(static_cast<uint64_t>(dims[i - 1]));
    list.Number(type);
    list.Number(static_cast<uint64_t>(offset));
    ++count;
  };
  if (!factors.empty()) add("rope_freqs.weight", {shape.head_dim / 2}, 0, 0);
  std::vector<ShapeTensor> tensors =
      OnlyGguf(shape) ? GgufTensorsOf(shape, layers) : TensorsOf(shape, layers);
  for (ShapeTensor& tensor : tensors) {
    if (!OnlyGguf(shape)) tensor.name = NameOf(tensor.name);
    WeightType type = WeightType::kF32;
    if (tensor.shape.size() > 1 && !tensor.floats) {
      type = matrices == WeightType::kQ4K ? QuantOf(tensor.shape.back()) : matrices;
    }
    add(tensor.name, tensor.shape, NumberOf(type), before + file.offsets.back());
    file.offsets.push_back(file.offsets.back() + GgufAligned(TensorBytes(type, tensor.count())));
    file.types.push_back(type);
    file.tensors.push_back(std::move(tensor));
  }
  GgufBytes settings;
  AddSettings(shape, layers, settings);
  AddTokenizer(shape, settings);
  GgufBytes head;
  head.text() = "GGUF";
  head.Number(kGgufVersion);
  head.Number(count);
  head.Number(settings.keys());
  head.text() += settings.text();
  head.text() += list.text();
  head.Align();
  for (const float factor : factors) head.Float(factor);
  head.Align();
  file.head = std::move(head.text());
  return file;
}

}  // namespace quire::cli
