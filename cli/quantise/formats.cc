#include "cli/quantise/formats.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <variant>

namespace quire::cli {
namespace {

using kernels::DType;

constexpr QuantiseFormat kFormats[] = {
    {.name = "q4_0", .gguf = true, .type = DType::kQ4_0, .file_type = 2},
    {.name = "q8_0", .gguf = true, .type = DType::kQ8_0, .file_type = 7},
    {.name = "q4_k_s", .gguf = true, .type = DType::kQ4_K, .file_type = 14},
    {.name = "q4_k_m", .gguf = true, .type = DType::kQ4_K, .mixed = true, .file_type = 15},
    {.name = "q5_k_s", .gguf = true, .type = DType::kQ5_K, .file_type = 16},
    {.name = "q5_k_m", .gguf = true, .type = DType::kQ5_K, .mixed = true, .file_type = 17},
    {.name = "q6_k", .gguf = true, .type = DType::kQ6_K, .file_type = 18},
    {.name = "w4a16", .packing = Packing::kInt4Groups},
    {.name = "w8a16", .packing = Packing::kInt8Packed},
    {.name = "w8a8", .packing = Packing::kInt8Rows},
    {.name = "fp8", .packing = Packing::kFp8Rows},
};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The layer of "blk.7.attn_v.weight".
int64_t LayerOf(std::string_view name) {
  int64_t layer = 0;
  if (name.starts_with("blk.")) {
    std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  }
  return layer;
}

// llama.cpp's rule for its _M files: the first and the last eighth of the layers, and every third
// one between them, lose most from few bits.
bool NeedsMoreBits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

DType MixedType(const QuantiseFormat& format, const GgufModelTraits& traits,
                std::string_view name) {
  const bool four = format.type == DType::kQ4_K;
  if (Contains(name, "attn_qkv.weight")) return four ? DType::kQ5_K : DType::kQ6_K;
  // Some experts share one attention: a few bytes more there do much.
  if (traits.experts >= 8 && (Contains(name, "attn_v.weight") || Contains(name, "attn_k.weight"))) {
    return DType::kQ8_0;
  }
  if (Contains(name, "attn_v.weight") || Contains(name, "ffn_down")) {
    return NeedsMoreBits(LayerOf(name), traits.layers) ? DType::kQ6_K : format.type;
  }
  return format.type;
}

// A type that rows of so many values can have, with as many bits or more.
DType FittingType(DType type, int64_t cols) {
  if (cols % kernels::BlockElements(type) == 0) return type;
  if (cols % 32 != 0) return DType::kF16;
  if (type == DType::kQ4_K) return DType::kQ5_0;
  return type == DType::kQ5_K ? DType::kQ5_1 : DType::kQ8_0;
}

// Whether its rows are of a size that is quantised. Requires a rank above 0.
bool HasRowsToQuantise(const load::Tensor& tensor) {
  const int64_t cols = tensor.shape.back();
  return !tensor.bytes.empty() && cols > 0 && cols <= kMaxQuantisedCols;
}

bool StaysInGguf(const load::Tensor& tensor) {
  const std::string_view name = tensor.name;
  return !name.ends_with(".weight") || tensor.shape.size() < 2 || !HasRowsToQuantise(tensor) ||
         Contains(name, "norm") || Contains(name, "ffn_gate_inp") || Contains(name, "pos_embd") ||
         Contains(name, "token_types") || Contains(name, "shortconv") || Contains(name, "ssm_") ||
         Contains(name, "rope_freqs");
}

}  // namespace

std::span<const QuantiseFormat> QuantiseFormats() { return kFormats; }

const QuantiseFormat* FindQuantiseFormat(std::string_view name) {
  const auto* place = std::ranges::find(kFormats, name, &QuantiseFormat::name);
  return place == std::end(kFormats) ? nullptr : place;
}

GgufModelTraits TraitsOf(const load::GgufFile& file) {
  GgufModelTraits traits;
  const auto architecture = file.String("general.architecture");
  if (architecture.ok()) {
    const std::string prefix = std::string(*architecture) + ".";
    traits.layers = file.Integer(prefix + "block_count").value_or(0);
    traits.experts = file.Integer(prefix + "expert_count").value_or(0);
  }
  traits.tied = file.tensors().Find("output.weight") == nullptr;
  return traits;
}

kernels::DType GgufTypeFor(const QuantiseFormat& format, const GgufModelTraits& traits,
                           const load::Tensor& tensor) {
  if (StaysInGguf(tensor)) return *tensor.type;
  const bool head =
      tensor.name == "output.weight" || (traits.tied && tensor.name == "token_embd.weight");
  DType type = format.type;
  if (head && type != DType::kQ8_0) {
    type = DType::kQ6_K;
  } else if (format.mixed) {
    type = MixedType(format, traits, tensor.name);
  }
  return FittingType(type, tensor.shape.back());
}

bool IsFloat(const load::Tensor& tensor) {
  return tensor.type == DType::kF32 || tensor.type == DType::kF16 || tensor.type == DType::kBF16;
}

std::string ModuleOf(const load::Tensor& tensor) {
  return tensor.name.substr(0, tensor.name.rfind(".weight"));
}

bool IsPacked(const QuantiseFormat& format, const load::Tensor& tensor) {
  const std::string_view name = tensor.name;
  if (!IsFloat(tensor) || tensor.shape.size() != 2 || !name.ends_with(".weight")) return false;
  if (!HasRowsToQuantise(tensor)) return false;
  const std::string module = ModuleOf(tensor);
  const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
  constexpr std::string_view kWhole[] = {"lm_head", "gate", "router", "shared_expert_gate",
                                         "wte",     "wpe",  "score",  "classifier"};
  constexpr std::string_view kParts[] = {"embed", "norm", "vision", "visual", "audio", "projector"};
  if (std::ranges::find(kWhole, last) != std::end(kWhole)) return false;
  for (const std::string_view part : kParts) {
    if (Contains(module, part)) return false;
  }
  return tensor.shape[1] % (format.packing == Packing::kInt4Groups ? kInt4Group : 4) == 0;
}

}  // namespace quire::cli
