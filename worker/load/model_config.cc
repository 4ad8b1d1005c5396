#include "worker/load/model_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "kernels/kv_layout.h"

namespace quire::load {
namespace {

struct Range {
  const char* name;
  int64_t value;
  int64_t low;
  int64_t high;
};

absl::Status CheckRanges(std::initializer_list<Range> ranges) {
  for (const Range& range : ranges) {
    if (range.value < range.low || range.value > range.high) {
      return absl::InvalidArgumentError(absl::StrCat(
          range.name, " is ", range.value, ", allowed are ", range.low, " to ", range.high));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPositive(const char* name, double value) {
  if (std::isfinite(value) && value > 0.0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", it must be above 0"));
}

absl::Status CheckRope(const RopeConfig& rope) {
  QUIRE_RETURN_IF_ERROR(CheckPositive("rope_theta", rope.theta));
  QUIRE_RETURN_IF_ERROR(CheckPositive("rope factor", rope.factor));
  QUIRE_RETURN_IF_ERROR(CheckPositive("rope attention_factor", rope.attention_factor));
  if (rope.scaling == RopeConfig::Scaling::kLlama3) {
    QUIRE_RETURN_IF_ERROR(CheckPositive("rope low_freq_factor", rope.low_frequency_factor));
    QUIRE_RETURN_IF_ERROR(CheckPositive("rope high_freq_factor", rope.high_frequency_factor));
    if (rope.high_frequency_factor == rope.low_frequency_factor) {
      return InvalidArgument("rope high_freq_factor equals low_freq_factor, it must be larger");
    }
  }
  using Scaling = RopeConfig::Scaling;
  if (rope.scaling == Scaling::kProportional &&
      !(rope.proportion >= 0.0 && rope.proportion <= 1.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("partial_rotary_factor is ", rope.proportion, ", it must lie in [0, 1]"));
  }
  if (rope.scaling == Scaling::kLlama3 || rope.scaling == Scaling::kYarn ||
      rope.scaling == Scaling::kLongRope) {
    QUIRE_RETURN_IF_ERROR(
        CheckPositive("rope original_max_position_embeddings", rope.original_context));
  }
  if (rope.scaling == RopeConfig::Scaling::kYarn) {
    QUIRE_RETURN_IF_ERROR(CheckPositive("rope beta_fast", rope.beta_fast));
    QUIRE_RETURN_IF_ERROR(CheckPositive("rope beta_slow", rope.beta_slow));
    if (rope.theta == 1.0) return InvalidArgument("rope_theta is 1, YaRN needs another base");
  }
  return absl::OkStatus();
}

absl::Status CheckLongRope(const ModelConfig& config, const RopeConfig& rope) {
  if (rope.scaling != RopeConfig::Scaling::kLongRope) return absl::OkStatus();
  const auto wanted = static_cast<size_t>(config.RotaryDim() / 2);
  const auto check = [wanted](const char* name, const std::vector<double>& factors) {
    if (factors.size() != wanted) {
      return absl::InvalidArgumentError(
          absl::StrCat("rope ", name, " has ", factors.size(), " numbers, it must have ", wanted));
    }
    for (const double factor : factors) QUIRE_RETURN_IF_ERROR(CheckPositive(name, factor));
    return absl::OkStatus();
  };
  QUIRE_RETURN_IF_ERROR(check("short_factor", rope.short_factors));
  return check("long_factor", rope.long_factors);
}

absl::Status CheckScales(const ModelConfig& config) {
  QUIRE_RETURN_IF_ERROR(CheckPositive("embedding_multiplier", config.embedding_scale));
  QUIRE_RETURN_IF_ERROR(CheckPositive("residual_multiplier", config.residual_scale));
  if (!std::isfinite(config.query_growth.rate) || config.query_growth.interval < 1) {
    return absl::InvalidArgumentError(absl::StrCat("queries grow by ", config.query_growth.rate,
                                                   " every ", config.query_growth.interval,
                                                   " positions, at least 1 is needed"));
  }
  return CheckPositive("the scale of the logits", config.logit_scale);
}

absl::Status CheckRotation(const ModelConfig& config) {
  if (config.rotary_dim == 0) return absl::OkStatus();
  if (config.rotary_dim % 2 == 0 && config.rotary_dim > 0 && config.rotary_dim <= config.head_dim) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("partial_rotary_factor makes ", config.rotary_dim, " of ", config.head_dim,
                   " elements of a head turn, it must be an even number of them"));
}

absl::Status CheckWindows(const ModelConfig& config) {
  if (config.layer_windows.size() != static_cast<size_t>(config.layers)) {
    return absl::InvalidArgumentError(absl::StrCat("layer_types has ", config.layer_windows.size(),
                                                   " entries for ", config.layers, " layers"));
  }
  if (!config.mixers.empty() && config.mixers.size() != config.layer_windows.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the pattern of layers has ",
                                                   config.mixers.size(), " entries for ",
                                                   config.layers, " layers"));
  }
  for (int window : config.layer_windows) {
    if (window == kernels::kNoKeys) continue;
    QUIRE_RETURN_IF_ERROR(CheckRanges({{"sliding_window", window, 0, kMaxPositions}}));
  }
  return CheckRecurrentLayers(config);
}

absl::Status CheckLatents(const ModelConfig& config) {
  const LatentConfig& latent = config.latent;
  if (latent.rank == 0) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(CheckRanges({
      {"qk_rope_head_dim", latent.rope_dim, 2, config.head_dim - 1},
      {"kv_lora_rank", latent.rank, 1, kMaxHeadDimension - latent.rope_dim},
      {"q_lora_rank", latent.query_rank, 0, kMaxWidth},
      {"v_head_dim", latent.value_dim, 1, kMaxHeadDimension},
  }));
  for (const int window : config.layer_windows) {
    if (window != 0) return InvalidArgument("layer_types: latent attention has no windows");
  }
  return absl::OkStatus();
}

absl::Status CheckExperts(const ModelConfig& config) {
  const ExpertConfig& experts = config.experts;
  if (experts.count == 0) return absl::OkStatus();
  const kernels::RoutingRule& rule = experts.rule;
  QUIRE_RETURN_IF_ERROR(CheckRanges({
      {"num_experts", experts.count, 1, kernels::kMaxExperts},
      {"moe_intermediate_size", experts.width, 1, kMaxWidth},
      {"shared_expert_intermediate_size", experts.shared_width, 0, kMaxWidth},
      {"num_experts_per_tok", rule.chosen, 1,
       std::min<int64_t>(experts.count, kernels::kMaxChosenExperts)},
      {"n_group", rule.groups, 1, experts.count},
      {"topk_group", rule.groups_used, 1, rule.groups},
  }));
  if (experts.count % rule.groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat("n_group is ", rule.groups, ", num_experts ",
                                                   experts.count,
                                                   " does not divide into so many groups"));
  }
  const int of_group = experts.count / rule.groups;
  if (of_group * rule.groups_used < rule.chosen || of_group < rule.best_of_group) {
    return absl::InvalidArgumentError(
        absl::StrCat("topk_group is ", rule.groups_used, ", groups of ", of_group,
                     " experts do not hold the ", rule.chosen, " of num_experts_per_tok"));
  }
  QUIRE_RETURN_IF_ERROR(CheckPositive("routed_scaling_factor", rule.scale));
  if (experts.layers.size() == static_cast<size_t>(config.layers)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("experts are named for ", experts.layers.size(),
                                                 " of ", config.layers, " layers"));
}

std::string ExpertText(const ExpertConfig& experts) {
  const kernels::RoutingRule& rule = experts.rule;
  std::string text =
      absl::StrFormat("experts=%d,%d,%d,%d,%d,%d,%d,%d,%d,%.9g,", experts.count, experts.width,
                      experts.shared_width, static_cast<int>(rule.scores), rule.chosen, rule.groups,
                      rule.groups_used, rule.best_of_group, rule.renormalise ? 1 : 0, rule.scale);
  for (const bool sparse : experts.layers) text += sparse ? '1' : '0';
  if (experts.biases) text += ",biases";
  if (experts.selection_bias) text += ",selection_bias";
  if (!experts.shared_gated) text += ",plain_shared";
  return text + "\n";
}

// What few families have; nothing for the others, whose texts stay as they were.
std::string TurnsAndScalesText(const ModelConfig& config) {
  std::string text;
  if (config.rotary_dim != 0) absl::StrAppend(&text, "rotary_dim=", config.rotary_dim, "\n");
  if (!config.layers_without_rope.empty()) {
    text += "without_rope=";
    for (const bool without : config.layers_without_rope) text += without ? '1' : '0';
    text += "\n";
  }
  if (config.embedding_scale != 1.0 || config.residual_scale != 1.0 || config.logit_scale != 1.0) {
    absl::StrAppendFormat(&text, "scales=%.17g,%.17g,%.17g\n", config.embedding_scale,
                          config.residual_scale, config.logit_scale);
  }
  if (const kernels::QueryGrowth& growth = config.query_growth; growth.rate != 0.0f) {
    absl::StrAppendFormat(&text, "query_growth=%.9g,%d,%d\n", growth.rate, growth.offset,
                          growth.interval);
  }
  if (!config.norm_bias) text += "norm_bias=0\n";
  if (!config.mixers.empty()) {
    text += "mixers=";
    for (const ModelConfig::Mixer mixer : config.mixers) {
      text += static_cast<char>('0' + static_cast<int>(mixer));
    }
    text += "\n";
  }
  if (config.head_norms) text += "head_norms=1\n";
  const LatentConfig& latent = config.latent;
  if (latent.rank > 0) {
    absl::StrAppend(&text, "latent=", latent.rank, ",", latent.query_rank, ",", latent.rope_dim,
                    ",", latent.value_dim, ",", latent.pairs, "\n");
  }
  return text;
}

std::string RopeText(const RopeConfig& rope) {
  std::string text =
      absl::StrFormat("%.17g,%d,%.17g,%.17g,%.17g,%.17g,%.17g,%.17g,%.17g,%d", rope.theta,
                      static_cast<int>(rope.scaling), rope.factor, rope.low_frequency_factor,
                      rope.high_frequency_factor, rope.original_context, rope.beta_fast,
                      rope.beta_slow, rope.attention_factor, rope.truncate ? 1 : 0);
  if (rope.scaling == RopeConfig::Scaling::kProportional) {
    absl::StrAppendFormat(&text, ",%.17g", rope.proportion);
  }
  if (rope.scaling != RopeConfig::Scaling::kLongRope) return text;
  for (const double factor : rope.long_context ? rope.long_factors : rope.short_factors) {
    absl::StrAppendFormat(&text, ",%.17g", factor);
  }
  return text;
}

}  // namespace

absl::Status CheckModelConfig(const ModelConfig& config) {
  QUIRE_RETURN_IF_ERROR(CheckRanges({
      {"vocab_size", config.vocab_size, 1, kMaxVocabulary},
      {"hidden_size", config.hidden_size, 1, kMaxWidth},
      {"intermediate_size", config.intermediate_size, 1, kMaxWidth},
      {"num_hidden_layers", config.layers, 1, kMaxLayers},
      {"num_attention_heads", config.heads, 1, kMaxHeads},
      {"num_key_value_heads", config.kv_heads, 1, kMaxHeads},
      {"head_dim", config.head_dim, 1, kMaxHeadDimension},
      {"max_position_embeddings", config.max_positions, 1, kMaxPositions},
      {"word_embed_proj_dim", config.embedding_size, 1, kMaxWidth},
  }));
  if (config.heads % config.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("num_attention_heads is ", config.heads,
                                                   ", no multiple of num_key_value_heads ",
                                                   config.kv_heads));
  }
  if (config.rotary && config.rotary_dim == 0 && config.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_dim is ", config.head_dim, ", rotary positions need an even one"));
  }
  if (!(config.norm_epsilon >= 0.0 && config.norm_epsilon < 1.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("norm epsilon is ", config.norm_epsilon, ", it must lie in [0, 1)"));
  }
  QUIRE_RETURN_IF_ERROR(CheckPositive("the attention scale", config.attention_scale));
  for (double softcap : {config.attention_softcap, config.logit_softcap}) {
    if (!std::isfinite(softcap) || softcap < 0.0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a softcap is ", softcap, ", it must be above 0 or absent"));
    }
  }
  QUIRE_RETURN_IF_ERROR(CheckRope(config.rope));
  QUIRE_RETURN_IF_ERROR(CheckRope(config.sliding_rope));
  QUIRE_RETURN_IF_ERROR(CheckLatents(config));
  QUIRE_RETURN_IF_ERROR(CheckExperts(config));
  QUIRE_RETURN_IF_ERROR(CheckRotation(config));
  QUIRE_RETURN_IF_ERROR(CheckLongRope(config, config.rope));
  QUIRE_RETURN_IF_ERROR(CheckLongRope(config, config.sliding_rope));
  QUIRE_RETURN_IF_ERROR(CheckScales(config));
  QUIRE_RETURN_IF_ERROR(CheckGemmaForm(config));
  return CheckWindows(config);
}

int ModelConfig::KeysOf(int layer) const {
  const int first_shared = layers - gemma.shared_layers;
  if (layer < first_shared) return layer;
  int owner = first_shared - 1;
  while (owner >= 0 &&
         layer_windows[static_cast<size_t>(owner)] != layer_windows[static_cast<size_t>(layer)]) {
    --owner;
  }
  return owner;
}

bool ModelConfig::HasMlp() const {
  if (!mixers.empty()) return std::find(mixers.begin(), mixers.end(), Mixer::kMlp) != mixers.end();
  return experts.count == 0 ||
         std::find(experts.layers.begin(), experts.layers.end(), false) != experts.layers.end();
}

absl::StatusOr<ModelConfig> CheckedModelConfig(ModelConfig config, const std::string& path) {
  // YaRN serves factor times the context that the model was trained with. Files to which a user has
  // added the scaling often still name the shorter one. A value that is out of range stays as in
  // the file.
  const double stretched = config.rope.original_context * config.rope.factor;
  if (config.rope.scaling == RopeConfig::Scaling::kYarn && stretched > config.max_positions &&
      stretched <= kMaxPositions) {
    config.max_positions = static_cast<int>(stretched);
  }
  QUIRE_RETURN_IF_ERROR(Annotate(CheckModelConfig(config), path));
  return config;
}

void ChooseContext(ModelConfig& config, int64_t max_model_len) {
  const int64_t longest = max_model_len == 0 ? config.max_positions : max_model_len;
  for (RopeConfig* rope : {&config.rope, &config.sliding_rope}) {
    if (rope->scaling != RopeConfig::Scaling::kLongRope) continue;
    rope->long_context = static_cast<double>(longest) > rope->original_context;
    // What is served with the short factors ends at the border.
    if (!rope->long_context && rope->original_context < config.max_positions) {
      config.max_positions = static_cast<int>(rope->original_context);
    }
  }
}

double YarnMagnitude(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

std::string CanonicalText(const ModelConfig& config) {
  std::string text = absl::StrCat(
      "family=", config.family, "\nvocab_size=", config.vocab_size,
      "\nhidden_size=", config.hidden_size, "\nintermediate_size=", config.intermediate_size,
      "\nlayers=", config.layers, "\nheads=", config.heads, "\nkv_heads=", config.kv_heads,
      "\nhead_dim=", config.head_dim, "\nmax_positions=", config.max_positions);
  absl::StrAppendFormat(&text, "\nnorm_epsilon=%.17g\nactivation=%d", config.norm_epsilon,
                        static_cast<int>(config.activation));
  absl::StrAppend(&text, "\ntied=", config.tied_embeddings, "\nqkv_bias=", config.qkv_bias,
                  "\noutput_bias=", config.output_bias, "\nmlp_bias=", config.mlp_bias);
  absl::StrAppendFormat(&text, "\nattention_scale=%.17g\nsoftcaps=%.17g,%.17g\nnorm_offset=%.17g",
                        config.attention_scale, config.attention_softcap, config.logit_softcap,
                        config.norm_weight_offset);
  absl::StrAppend(&text, "\nwindows=", absl::StrJoin(config.layer_windows, ","),
                  "\nrope=", RopeText(config.rope),
                  "\nsliding_rope=", RopeText(config.sliding_rope),
                  "\ninterleaved=", config.interleaved_rope,
                  "\nembedding_size=", config.embedding_size, "\nnorm_before=", config.norm_before,
                  "\nfinal_norm=", config.final_norm, "\nnorm_affine=", config.norm_affine, "\n");
  text += TurnsAndScalesText(config);
  text += GemmaText(config.gemma);
  text += RecurrentText(config);
  if (config.experts.count > 0) text += ExpertText(config.experts);
  if (!config.quantisation.empty()) {
    absl::StrAppend(&text, "quantisation=", config.quantisation, "\n");
  }
  return text;
}

}  // namespace quire::load
