// The name of each part of a model in a checkpoint: the names that most families use, and how a
// family adds its own.
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
  kRopeFactors,  // GGUF only: each rotary frequency is divided by it
  // One of each per layer.
  kAttentionNorm,
  kQuery,
  kKey,
  kValue,
  kQueryNorm,
  kKeyNorm,
  kOutput,
  // Of latent attention: the products that make queries and latents, and the norms between them.
  kQueryDown,
  kQueryDownNorm,
  kQueryUp,
  kLatentDown,
  kLatentNorm,
  kLatentUp,  // keys and values of all heads, by head
  kHeadKeys,  // GGUF: the same apart, one of each per head; transposed
  kHeadValues,
  kPostAttentionNorm,
  kMlpNorm,
  kGate,
  kUp,
  kDown,
  kPostMlpNorm,
  // Of recurrent layers.
  kRecurrentIn,      // a short convolution's B, C and x; the delta rule's q, k and v
  kRecurrentPacked,  // … and z, by key head
  kRecurrentZ,
  kRecurrentB,  // or b and a
  kRecurrentA,
  kConvolution,
  kDecay,
  kStepBias,
  kSkip,  // Mamba-2's D
  kGatedNorm,
  kRecurrentOut,
  // Of layers with experts.
  kRouter,
  kSelectionBias,  // of the router's choice
  kSharedRouter,
  kSinks,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  // Gemma 4.
  kLayerEmbedding,
  kLayerProjection,
  kLayerProjectionNorm,
  kLayerGate,
  kLayerOut,
  kLayerNorm,
  kLayerScalar,
  kPostDenseNorm,
  kExpertNorm,
  kPostExpertNorm,
  kRouterScale,
  kExpertScales,
  kFusedGateUp,  // of all experts, [experts, 2 inner, width]; and down
  kFusedDown,
  // Of a layer that predicts a further token.
  kNextEmbeddingNorm,
  kNextHiddenNorm,
  kNextProjection,
  kNextEmbedding,
  kNextNorm,
  kNextHead,
  // One of each per layer and expert.
  kExpertGate,
  kExpertUp,
  kExpertDown,
};

inline constexpr int kNoLayer = -1;
inline constexpr int kNoExpert = -1;

// Which of the model's parts of one kind. A head's matrix has the head for an expert.
struct Place {
  Place(int of_layer = kNoLayer, int of_expert = kNoExpert)  // NOLINT: a layer is a place
      : layer(of_layer), expert(of_expert) {}
  int layer;
  int expert;
};

// The number of an expert takes the place of "*". In GGUF one tensor holds all experts of a layer,
// and one the matrices of all heads.
// A name that ends in "$" is a weight's whole name, and its bias's before "_bias".
struct TensorName {
  Part part;
  const char* name;
};

// Checkpoints for images and text hold the language model one level down; those without a head
// leave "model." out.
inline constexpr const char* kUsualPrefixes[] = {"model.", "language_model.model.",
                                                 "model.language_model.", ""};

// The parts for which a family has other names than most. Neighbours with one name are one tensor,
// one below the other.
struct TensorNaming {
  std::span<const TensorName> own = {};  // below the prefix and, for parts of a layer, "layers.N."
  std::span<const TensorName> own_gguf = {};  // several of one part: files have one of them
  // gpt-oss in Hugging Face's format: one tensor for all experts of a layer, the inputs before the
  // outputs, outputs of gate and up in turn.
  bool experts_inputs_first = false;
  // One tensor for all experts of a layer, [experts, outputs, inputs], of gate and up together.
  bool experts_stacked = false;
  std::span<const char* const> prefixes = kUsualPrefixes;
};

// The possible names of the part, most common first. `suffix` is "weight" or "bias". Empty when the
// format has no such part.
std::vector<std::string> TensorNames(const TensorNaming& naming, bool gguf, Part part,
                                     const Place& place, std::string_view suffix);

// The modules of a Hugging Face checkpoint under which the part may be found, in the same order.
std::vector<std::string> ModuleNames(const TensorNaming& naming, Part part, const Place& place);

}  // namespace quire::model
