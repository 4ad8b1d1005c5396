// The description of a model, read from config.json or GGUF metadata into one form.
//
// A value; the model files of worker/model and the memory plan read it.
// 1. Every count is positive and bounded, heads are a multiple of kv_heads, layer_windows has one
//    entry per layer: readers of a ModelConfig need not check it again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/head_rules.h"
#include "kernels/routing_rule.h"
#include "worker/load/gemma_form.h"
#include "worker/load/recurrent_config.h"

namespace quire::load {

inline constexpr int64_t kMaxVocabulary = 1 << 24;
inline constexpr int64_t kMaxWidth = 1 << 20;  // hidden, intermediate
inline constexpr int64_t kMaxLayers = 1'024;
inline constexpr int64_t kMaxHeads = 1'024;
inline constexpr int64_t kMaxHeadDimension = 1'024;
inline constexpr int64_t kMaxPositions = 1 << 26;

// Rotary position embeddings. Absent values have been filled in with the family's defaults.
struct RopeConfig {
  enum class Scaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope, kProportional };
  double theta = 10'000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  double low_frequency_factor = 1.0;   // Llama 3
  double high_frequency_factor = 4.0;  // Llama 3
  double original_context = 0.0;       // Llama 3, YaRN, LongRoPE
  double beta_fast = 32.0;             // YaRN
  double beta_slow = 1.0;              // YaRN
  double attention_factor = 1.0;       // YaRN, LongRoPE: cos and sin are multiplied by it
  bool truncate = true;                // YaRN: correction range rounded to whole dimensions
  // LongRoPE: each frequency is divided by a factor of its own, one for contexts within the
  // original one and another beyond.
  std::vector<double> short_factors;
  std::vector<double> long_factors;
  bool long_context = true;  // LongRoPE: which of the two
  double proportion = 1.0;   // proportional: the part of a head that turns, the first frequencies
  // YaRN: where latent attention multiplies queries and keys by it (mscale_all_dim).
  double score_magnitude = 1.0;
};

// A mixture of experts in place of some layers' mlp.
struct ExpertConfig {
  int count = 0;  // 0: no layer has any
  int width = 0;  // inner, of each
  kernels::RoutingRule rule;
  bool biases = false;          // of the router and of every expert
  bool selection_bias = false;  // added to scores, for the choice alone
  // One more expert, for every token; 0: none.
  int shared_width = 0;
  bool shared_gated = true;  // its result is weighed by the sigmoid of a number of its own
  std::vector<bool> layers;  // those with experts; others have the mlp of intermediate_size
};

// Multi-head latent attention in every layer. head_dim is a query's, and its last rope_dim elements
// turn; kv_heads is 1.
struct LatentConfig {
  int rank = 0;        // of what a token keeps for all heads; 0: the model has ordinary attention
  int query_rank = 0;  // between the two products that make queries; 0: there is one product
  int rope_dim = 0;
  int value_dim = 0;  // of a head's result
  bool pairs = true;  // neighbouring elements turn together
};

struct ModelConfig {
  enum class Activation : uint8_t { kSilu, kGeluTanh, kRelu, kClamped, kReluSquared };
  // What a layer is where it is one block alone.
  enum class Mixer : uint8_t { kRecurrent, kAttention, kMlp, kExperts };

  std::string family;  // "llama", "gemma3", …
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int max_positions = 0;  // longest context
  double norm_epsilon = 1e-6;
  Activation activation = Activation::kSilu;
  bool tied_embeddings = false;  // the head is the embedding table
  bool qkv_bias = false;
  bool head_norms = false;   // RMS norms of q and k, where the family leaves it to the file
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  double attention_scale = 0.0;  // of q · k
  double attention_softcap = 0.0;
  double logit_softcap = 0.0;
  // Tokens that a query sees, itself included; 0 is full attention, kernels::kNoKeys: none, the
  // layer is recurrent, or an mlp alone.
  std::vector<int> layer_windows;
  // One for each layer; empty: each is attention or a recurrence, and then an mlp.
  std::vector<Mixer> mixers;
  RopeConfig rope;          // of full layers
  RopeConfig sliding_rope;  // of sliding layers
  double norm_weight_offset =
      0.0;  // added to RMS norm weights: 1 for Gemma as Hugging Face stores it
  // GGUF's "llama" rotates neighbouring pairs: its q and k rows are put back into halves at load.
  bool interleaved_rope = false;
  bool rotary = true;                     // positions turn q and k
  int rotary_dim = 0;                     // elements of a head that turn, the first; 0: all
  std::vector<bool> layers_without_rope;  // empty: all turn q and k
  int RotaryDim() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
  // Layers that a program leaves out to draft for the whole model, ascending; not of the file.
  std::vector<int> skipped_layers;
  bool Skips(int layer) const {
    return std::find(skipped_layers.begin(), skipped_layers.end(), layer) != skipped_layers.end();
  }
  bool HasRope(int layer) const {
    return rotary &&
           (layers_without_rope.empty() || !layers_without_rope[static_cast<size_t>(layer)]);
  }

  kernels::QueryGrowth query_growth;

  LatentConfig latent;
  // Of a key as the cache holds it.
  int CacheDim() const { return latent.rank > 0 ? latent.rank + latent.rope_dim : head_dim; }

  double embedding_scale = 1.0;  // beside the family's own
  double residual_scale = 1.0;   // of each block's result
  double logit_scale = 1.0;

  ExpertConfig experts;
  bool HasExperts(int layer) const {
    return experts.count > 0 && experts.layers[static_cast<size_t>(layer)];
  }
  // Whether some layer has the mlp of intermediate_size.
  bool HasMlp() const;

  GemmaForm gemma;
  // The layer whose keys and values this one reads; −1: there is none.
  int KeysOf(int layer) const;
  RecurrentConfig recurrent;
  bool IsRecurrent(int layer) const {
    if (!mixers.empty()) return mixers[static_cast<size_t>(layer)] == Mixer::kRecurrent;
    return recurrent.Exists() && layer_windows[static_cast<size_t>(layer)] < 0;
  }
  bool gated_attention = false;  // a sigmoid of numbers beside q multiplies what attention gives

  // Of a quantised checkpoint: what its configuration says, canonically (load/quantisation.h).
  std::string quantisation;

  // OPT, and Cohere the last two.
  int embedding_size = 0;  // of the embedding table; other families: hidden_size
  bool norm_before = true;
  bool final_norm = true;
  bool norm_affine = true;
  bool layer_norm = false;  // others: RMS norms
  bool norm_bias = true;    // of layer norms
};

// Checks invariant 1; the status names the field.
absl::Status CheckModelConfig(const ModelConfig& config);

// The configuration that a reader found in the file, with the context that YaRN stretches, once
// invariant 1 holds.
absl::StatusOr<ModelConfig> CheckedModelConfig(ModelConfig config, const std::string& path);

// LongRoPE's factors follow from the longest context that is served, 0: the model's own. It is one
// choice for all sequences: one that grew past the border would need other angles than those of the
// keys in its cache.
void ChooseContext(ModelConfig& config, int64_t max_model_len);

// One line per field, the same text for equal configurations: the digest of model_id covers it.
std::string CanonicalText(const ModelConfig& config);

// YaRN's default for attention_factor (arXiv 2309.00071, section 3.4).
double YarnMagnitude(double factor, double scale = 1.0);

}  // namespace quire::load
