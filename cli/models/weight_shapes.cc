#include "cli/models/weight_shapes.h"

#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/json/json.h"

namespace quire::cli {
namespace {

constexpr SpecialToken kLlamaTokens[] = {{128'000, "<|begin_of_text|>"},
                                         {128'001, "<|end_of_text|>"},
                                         {128'006, "<|start_header_id|>"},
                                         {128'007, "<|end_header_id|>"},
                                         {128'009, "<|eot_id|>"}};
constexpr SpecialToken kQwenTokens[] = {
    {151'643, "<|endoftext|>"}, {151'644, "<|im_start|>"}, {151'645, "<|im_end|>"}};
constexpr SpecialToken kQwen35Tokens[] = {
    {248'044, "<|endoftext|>"}, {248'045, "<|im_start|>"}, {248'046, "<|im_end|>"}};
constexpr SpecialToken kDeepseekTokens[] = {{100'000, "<|begin_of_sentence|>"},
                                            {100'001, "<|end_of_sentence|>"}};
constexpr SpecialToken kTinyTokens[] = {{256, "<|begin_of_text|>"}, {257, "<|end_of_text|>"}};

constexpr ModelShape kShapes[] = {
    {.name = "Llama-3.2-1B",
     .layers = 16,
     .hidden = 2048,
     .inner = 8192,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 64,
     .vocabulary = 128'256,
     .tied = true,
     .positions = 131'072,
     .theta = 500'000,
     .norm_epsilon = 1e-5,
     .rope_factor = 32,
     .rope_original = 8192,
     .specials = kLlamaTokens,
     .begin = 128'000,
     .end = 128'001},
    {.name = "Llama-3.1-8B",
     .layers = 32,
     .hidden = 4096,
     .inner = 14'336,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .vocabulary = 128'256,
     .tied = false,
     .positions = 131'072,
     .theta = 500'000,
     .norm_epsilon = 1e-5,
     .rope_factor = 8,
     .rope_original = 8192,
     .specials = kLlamaTokens,
     .begin = 128'000,
     .end = 128'001},
    {.name = "Qwen2.5-0.5B",
     .family = ShapeFamily::kQwen2,
     .layers = 24,
     .hidden = 896,
     .inner = 4864,
     .heads = 14,
     .kv_heads = 2,
     .head_dim = 64,
     .vocabulary = 151'936,
     .tied = true,
     .positions = 32'768,
     .theta = 1'000'000,
     .norm_epsilon = 1e-6,
     .specials = kQwenTokens,
     .begin = 151'643,
     .end = 151'643},
    {.name = "Qwen3-30B-A3B",
     .family = ShapeFamily::kQwen3Moe,
     .layers = 48,
     .hidden = 2048,
     .inner = 6144,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .vocabulary = 151'936,
     .positions = 40'960,
     .theta = 1'000'000,
     .norm_epsilon = 1e-6,
     .specials = kQwenTokens,
     .begin = 151'643,
     .end = 151'645,
     .experts = {.count = 128, .chosen = 8, .inner = 768}},
    {.name = "Qwen3.5-4B",
     .family = ShapeFamily::kQwen35,
     .layers = 32,
     .hidden = 2560,
     .inner = 9216,
     .heads = 16,
     .kv_heads = 4,
     .head_dim = 256,
     .vocabulary = 248'320,
     .tied = true,
     .positions = 262'144,
     .theta = 10'000'000,
     .norm_epsilon = 1e-6,
     .specials = kQwen35Tokens,
     .begin = 248'044,
     .end = 248'046,
     .delta = {.interval = 4, .key_heads = 16, .value_heads = 32, .head_dim = 128}},
    {.name = "DeepSeek-V2-Lite",
     .family = ShapeFamily::kDeepseek2,
     .layers = 27,
     .hidden = 2048,
     .inner = 10'944,
     .heads = 16,
     .kv_heads = 1,
     .head_dim = 192,
     .vocabulary = 102'400,
     .positions = 163'840,
     .theta = 10'000,
     .norm_epsilon = 1e-6,
     .specials = kDeepseekTokens,
     .begin = 100'000,
     .end = 100'001,
     .experts = {.count = 64, .chosen = 6, .inner = 1408, .shared = 2, .dense_layers = 1},
     .latent = {.rank = 512, .rope = 64, .value = 128}},
    {.name = "tiny-llama",
     .layers = 2,
     .hidden = 128,
     .inner = 256,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .vocabulary = 512,
     .tied = false,
     .positions = 2048,
     .theta = 500'000,
     .norm_epsilon = 1e-5,
     .rope_factor = 8,
     .rope_original = 256,
     .specials = kTinyTokens,
     .begin = 256,
     .end = 257},
    {.name = "tiny-qwen2",
     .family = ShapeFamily::kQwen2,
     .layers = 2,
     .hidden = 128,
     .inner = 256,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 64,
     .vocabulary = 512,
     .tied = true,
     .positions = 2048,
     .theta = 1'000'000,
     .norm_epsilon = 1e-6,
     .specials = kTinyTokens,
     .begin = 256,
     .end = 257},
};

std::string_view TypeName(WeightType type) {
  if (type == WeightType::kBf16) return "bfloat16";
  return type == WeightType::kF16 ? "float16" : "float32";
}

json::Value Text(std::string_view text) { return json::Value(json::BoostView(text)); }

// How byte-level tokenizers write a byte that is no printable character of Latin-1: as the next one
// from 256 up (GPT-2's table).
std::string ByteToken(int byte) {
  const auto shown = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  int code = byte;
  if (!shown(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += shown(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

std::string_view SpecialText(const ModelShape& shape, int32_t id) {
  for (const SpecialToken& special : shape.specials) {
    if (special.id == id) return special.text;
  }
  return "";
}

float Deviation(double gain, int inputs) {
  return static_cast<float>(gain / std::sqrt(static_cast<double>(inputs)));
}

constexpr float kNormDeviation = 0.05f;
constexpr float kBiasDeviation = 0.1f;
// Of logits: wide enough that a token stands out, narrow enough that sampling has a choice.
constexpr double kLogitGain = 2.0;

void AddLayer(const ModelShape& shape, int layer, std::vector<ShapeTensor>& tensors) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
  const double residual =
      1.0 / std::sqrt(2.0 * shape.layers);  // the sum of all layers stays near 1
  const auto add = [&](const char* name, std::vector<int64_t> dims, WeightSpread spread) {
    tensors.push_back({prefix + name, std::move(dims), spread});
  };
  const auto norm = [&](const char* name) { add(name, {shape.hidden}, {1.0f, kNormDeviation}); };
  const auto linear = [&](const char* name, int outputs, int inputs, double gain) {
    add(name, {outputs, inputs}, {0.0f, Deviation(gain, inputs)});
  };
  const auto bias = [&](const char* name, int outputs) {
    if (shape.family == ShapeFamily::kQwen2) add(name, {outputs}, {0.0f, kBiasDeviation});
  };
  norm("input_layernorm.weight");
  linear("self_attn.q_proj.weight", queries, shape.hidden, 1.0);
  bias("self_attn.q_proj.bias", queries);
  linear("self_attn.k_proj.weight", keys, shape.hidden, 1.0);
  bias("self_attn.k_proj.bias", keys);
  linear("self_attn.v_proj.weight", keys, shape.hidden, 1.0);
  bias("self_attn.v_proj.bias", keys);
  linear("self_attn.o_proj.weight", shape.hidden, queries, residual);
  norm("post_attention_layernorm.weight");
  linear("mlp.gate_proj.weight", shape.inner, shape.hidden, 1.0);
  linear("mlp.up_proj.weight", shape.inner, shape.hidden, 1.0);
  linear("mlp.down_proj.weight", shape.hidden, shape.inner, residual);
}

}  // namespace

const char* const kChatTemplate =
    "{%- for message in messages %}\n"
    "    {{- message['role'] + ': ' + message['content'] + '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- 'assistant: ' }}\n"
    "{%- endif %}\n";

std::span<const ModelShape> ModelShapes() { return kShapes; }

const ModelShape* FindShape(std::string_view name) {
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

int32_t LeastVocabulary(const ModelShape& shape) {
  return 256 + static_cast<int32_t>(shape.specials.size());
}

ModelShape WithVocabulary(const ModelShape& shape, int32_t vocabulary,
                          std::vector<SpecialToken>& specials) {
  QUIRE_CHECK(vocabulary >= LeastVocabulary(shape));
  ModelShape cut = shape;
  specials.assign(shape.specials.begin(), shape.specials.end());
  int32_t next = vocabulary - static_cast<int32_t>(specials.size());
  for (SpecialToken& special : specials) {
    if (special.id == shape.begin) cut.begin = next;
    if (special.id == shape.end) cut.end = next;
    special.id = next++;
  }
  cut.vocabulary = vocabulary;
  cut.specials = specials;
  return cut;
}

WeightSpread WordSpread(const ModelShape& shape) {
  return {0.0f, Deviation(kLogitGain, shape.hidden)};
}

int64_t ShapeTensor::count() const {
  int64_t product = 1;
  for (const int64_t dim : shape) product *= dim;
  return product;
}

std::vector<ShapeTensor> TensorsOf(const ModelShape& shape, int layers) {
  std::vector<ShapeTensor> tensors;
  QUIRE_CHECK(!OnlyGguf(shape));
  const WeightSpread words = WordSpread(shape);
  tensors.push_back({"model.embed_tokens.weight", {shape.vocabulary, shape.hidden}, words});
  for (int layer = 0; layer < layers; ++layer) AddLayer(shape, layer, tensors);
  tensors.push_back({"model.norm.weight", {shape.hidden}, {1.0f, kNormDeviation}});
  if (!shape.tied) tensors.push_back({"lm_head.weight", {shape.vocabulary, shape.hidden}, words});
  return tensors;
}

std::string TokenText(const ModelShape& shape, int32_t id) {
  if (id < 256) return ByteToken(id);
  for (const SpecialToken& special : shape.specials) {
    if (special.id == id) return std::string(special.text);
  }
  return ByteToken(' ') + "w" + std::to_string(id);
}

std::string ConfigText(const ModelShape& shape, int layers, WeightType type) {
  const bool qwen = shape.family == ShapeFamily::kQwen2;
  json::Object config;
  config["architectures"] = json::Array{Text(qwen ? "Qwen2ForCausalLM" : "LlamaForCausalLM")};
  config["model_type"] = Text(qwen ? "qwen2" : "llama");
  config["vocab_size"] = shape.vocabulary;
  config["hidden_size"] = shape.hidden;
  config["intermediate_size"] = shape.inner;
  config["num_hidden_layers"] = layers;
  config["num_attention_heads"] = shape.heads;
  config["num_key_value_heads"] = shape.kv_heads;
  config["head_dim"] = shape.head_dim;
  config["hidden_act"] = "silu";
  config["max_position_embeddings"] = shape.positions;
  config["rms_norm_eps"] = shape.norm_epsilon;
  config["rope_theta"] = shape.theta;
  if (shape.rope_factor > 0) {
    json::Object scaling;
    scaling["rope_type"] = "llama3";
    scaling["factor"] = shape.rope_factor;
    scaling["low_freq_factor"] = 1.0;
    scaling["high_freq_factor"] = 4.0;
    scaling["original_max_position_embeddings"] = shape.rope_original;
    config["rope_scaling"] = std::move(scaling);
  }
  if (qwen) {
    config["use_sliding_window"] = false;
  } else {
    config["attention_bias"] = false;
    config["mlp_bias"] = false;
  }
  config["tie_word_embeddings"] = shape.tied;
  config["bos_token_id"] = shape.begin;
  config["eos_token_id"] = shape.end;
  config["torch_dtype"] = Text(TypeName(type));
  return json::Serialize(config) + "\n";
}

std::string GenerationConfigText(const ModelShape& shape) {
  json::Object config;
  config["bos_token_id"] = shape.begin;
  config["eos_token_id"] = shape.end;
  return json::Serialize(config) + "\n";
}

std::string TokenizerText(const ModelShape& shape) {
  json::Object vocabulary;
  vocabulary.reserve(static_cast<size_t>(shape.vocabulary));
  for (int32_t id = 0; id < shape.vocabulary; ++id) vocabulary[TokenText(shape, id)] = id;
  json::Array added;
  for (const SpecialToken& special : shape.specials) {
    added.push_back(json::Object{{"id", special.id},
                                 {"content", Text(special.text)},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}});
  }
  const json::Object bytes{{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  json::Object model{{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", false}};
  model["vocab"] = std::move(vocabulary);
  model["merges"] = json::Array();
  json::Object tokenizer{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  tokenizer["added_tokens"] = std::move(added);
  tokenizer["normalizer"] = nullptr;
  tokenizer["pre_tokenizer"] = bytes;
  tokenizer["post_processor"] = nullptr;
  tokenizer["decoder"] = bytes;
  tokenizer["model"] = std::move(model);
  return json::Serialize(tokenizer) + "\n";
}

std::string TokenizerConfigText(const ModelShape& shape) {
  json::Object config;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  config["bos_token"] = Text(SpecialText(shape, shape.begin));
  config["eos_token"] = Text(SpecialText(shape, shape.end));
  config["model_max_length"] = shape.positions;
  config["clean_up_tokenization_spaces"] = false;
  config["chat_template"] = kChatTemplate;
  return json::Serialize(config) + "\n";
}

}  // namespace quire::cli
