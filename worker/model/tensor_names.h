// What each part of a model is called in a checkpoint: the names that most families use, beside
// which a family lists its own.
//
// Values and pure functions; used while a program is built.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire::model {

enum class Part {
  kEmbedding,
  kPositions,
  kProjectIn,
  kProjectOut,
  kFinalNorm,
  kHead,
  kRopeFactors,  // GGUF only: what each rotary frequency is divided by
  // One of each per layer.
  kAttentionNorm,
  kQuery,
  kKey,
  kValue,
  kQueryNorm,
  kKeyNorm,
  kOutput,
  kPostAttentionNorm,
  kMlpNorm,
  kGate,
  kUp,
  kDown,
  kPostMlpNorm,
};

inline constexpr int kNoLayer = -1;

struct TensorName {
  Part part;
  const char* name;
};

// Image-and-text checkpoints hold the language model one level down; bare ones leave "model." out.
inline constexpr const char* kUsualPrefixes[] = {"model.", "language_model.model.",
                                                 "model.language_model.", ""};

// What a family calls otherwise in Hugging Face's checkpoints. In GGUF all use the same names.
struct TensorNaming {
  std::span<const TensorName> own = {};  // below the prefix and, for parts of a layer, "layers.N."
  std::span<const char* const> prefixes = kUsualPrefixes;
};

// The names under which the part may be found, most usual first. `suffix` is "weight" or "bias".
// Empty when the format has no such part.
std::vector<std::string> TensorNames(const TensorNaming& naming, bool gguf, Part part, int layer,
                                     std::string_view suffix);

}  // namespace quire::model
