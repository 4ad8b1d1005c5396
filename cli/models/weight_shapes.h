// Models that are known by their shape alone: the tensors, settings and tokenizer of each, as
// Hugging Face's files name them.
//
// Immutable values and pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/models/weight_values.h"

namespace quire::cli {

struct SpecialToken {
  int32_t id;
  std::string_view text;
};

struct ModelShape {
  std::string_view name;
  bool qwen = false;  // Qwen 2's family: biases on q, k and v; else Llama's
  int layers = 0;
  int hidden = 0;
  int inner = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  int vocabulary = 0;
  bool tied = false;  // the head is the embedding
  int positions = 0;
  double theta = 0;
  double norm_epsilon = 0;
  // Llama 3's scaling of rotary frequencies; 0: none.
  double rope_factor = 0;
  int rope_original = 0;
  std::span<const SpecialToken> specials;  // in order of ids; the first one begins a text for Llama
  int32_t begin = 0, end = 0;
};

std::span<const ModelShape> ModelShapes();
const ModelShape* FindShape(std::string_view name);  // null: there is none

struct ShapeTensor {
  std::string name;
  std::vector<int64_t> shape;
  WeightSpread spread;
  int64_t count() const;
};

// The tensors of the first `layers` layers and of what stands around them. Spreads keep the size of
// activations, whatever is cut off: values do not change with `layers`.
std::vector<ShapeTensor> TensorsOf(const ModelShape& shape, int layers);

// The texts of the files, with a new line at the end.
std::string ConfigText(const ModelShape& shape, int layers, WeightType type);
std::string GenerationConfigText(const ModelShape& shape);
// One token for each byte, the specials in their places, and a word " w1234" for every other id:
// any text can be encoded, and any id shown.
std::string TokenizerText(const ModelShape& shape);
std::string TokenizerConfigText(const ModelShape& shape);
std::string TokenText(const ModelShape& shape, int32_t id);
extern const char* const kChatTemplate;

}  // namespace quire::cli
