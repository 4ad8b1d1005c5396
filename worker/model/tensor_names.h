// What each part of a model is called in a checkpoint: the one place that knows tensor names.
//
// Values and pure functions; used while a program is built.
#pragma once

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

// The names under which the part may be found, most usual first. `suffix` is "weight" or "bias".
// Empty when the format has no such part.
std::vector<std::string> TensorNames(std::string_view family, bool gguf, Part part, int layer,
                                     std::string_view suffix);

}  // namespace quire::model
