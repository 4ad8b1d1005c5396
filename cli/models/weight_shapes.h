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

// Qwen2's has biases on q, k and v. The later ones are written as GGUF files alone.
enum class ShapeFamily { kLlama, kQwen2, kQwen3Moe, kQwen35, kDeepseek2 };

struct ModelShape {
  static constexpr int kDeltaTaps = 4;  // of the convolution before the delta rule
  struct Experts {
    int count = 0, chosen = 0;
    int inner = 0;         // width of one
    int shared = 0;        // that every token takes, as one mlp
    int dense_layers = 0;  // the first ones, which have an mlp instead
  };
  struct Latent {
    int rank = 0;
    int rope = 0;  // of ModelShape::head_dim
    int value = 0;
  };
  // Gated delta rule in all layers but each `interval`-th.
  struct Delta {
    int interval = 0;
    int key_heads = 0, value_heads = 0, head_dim = 0;
  };

  std::string_view name;
  ShapeFamily family = ShapeFamily::kLlama;
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
  Experts experts = {};
  Latent latent = {};
  Delta delta = {};
};

std::span<const ModelShape> ModelShapes();
const ModelShape* FindShape(std::string_view name);  // null: there is none
inline bool OnlyGguf(const ModelShape& shape) { return shape.family > ShapeFamily::kQwen2; }

// The shape with so many ids. The last ids are the special tokens; `specials` holds them, and must
// outlive the result. Requires: vocabulary ≥ LeastVocabulary(shape).
ModelShape WithVocabulary(const ModelShape& shape, int32_t vocabulary,
                          std::vector<SpecialToken>& specials);
int32_t LeastVocabulary(const ModelShape& shape);  // a token for each byte, and the specials

struct ShapeTensor {
  std::string name;
  std::vector<int64_t> shape;
  WeightSpread spread;
  bool floats = false;  // float32 in a GGUF file, whatever its matrices are
  int64_t count() const;
};

WeightSpread WordSpread(const ModelShape& shape);  // of embeddings and head

// The tensors of the first `layers` layers and of what stands around them. Spreads keep the size of
// activations, whatever is cut off: values do not change with `layers`. Requires: !OnlyGguf(shape).
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
