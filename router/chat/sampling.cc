#include "router/chat/sampling.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "common/wire/features.h"
#include "router/core/sampling_checks.h"

namespace quire {
namespace {

constexpr int32_t kCompletionMaxTokens = 16;

bool Serves(const ModelFacts& model, std::string_view feature) {
  return std::find(model.features.begin(), model.features.end(), feature) != model.features.end();
}

// "field: what" as ValidateSamplingParams words it.
ApiError FromRangeError(const absl::Status& status) {
  const std::string message = StatusMessage(status);
  return {ApiCode::kInvalidArgument, message, message.substr(0, message.find(':')), 0};
}

ApiError OutOfRange(std::string_view field, int64_t low, int64_t high) {
  return InvalidField(field,
                      "must be in [" + std::to_string(low) + ", " + std::to_string(high) + "]");
}

ApiError Unserved(std::string_view field, std::string_view neutral) {
  return InvalidField(
      field, "is not served by this model's workers; leave it unset or at " + std::string(neutral));
}

void SetNumbers(const SamplingOptions& options, const GenerationSettings& defaults,
                const ModelFacts& model, SamplingParams& params) {
  params.temperature = defaults.temperature.value_or(params.temperature);
  params.top_p = defaults.top_p.value_or(params.top_p);
  params.min_p = defaults.min_p.value_or(params.min_p);
  params.top_k = defaults.top_k.value_or(params.top_k);
  if (Serves(model, kFeaturePenalties)) {
    params.repetition_penalty = defaults.repetition_penalty.value_or(params.repetition_penalty);
  }
  // The widest limit, so that min_tokens is compared with its intended bound.
  params.max_tokens = static_cast<int32_t>(model.max_model_len);
#define QUIRE_SET_NUMBER(name, range, feature) params.name = options.name.value_or(params.name);
  QUIRE_SAMPLING_NUMBERS(QUIRE_SET_NUMBER)
#undef QUIRE_SET_NUMBER
  if (params.top_k == -1) params.top_k = 0;  // that workers of any version accept
}

ApiError TooLong(const PromptSize& prompt, const ModelFacts& model) {
  const std::string field(prompt.field);
  return ApiError{ApiCode::kInvalidArgument,
                  field + ": has " + std::to_string(prompt.tokens) +
                      " tokens, and the context of model " + model.name + " holds " +
                      std::to_string(model.max_model_len) + " with the answer: send at most " +
                      std::to_string(model.max_model_len - 1),
                  field, 0, kContextLengthExceeded};
}

// The first parameter that is set and that the workers do not list.
std::optional<ApiError> CheckServed(const SamplingOptions& options, const SamplingParams& params,
                                    const ModelFacts& model) {
  struct Row {
    std::string_view feature;
    std::string_view field;
    bool used;
    std::string_view neutral;
  };
  const SamplingParams neutral;
  const Row rows[] = {
#define QUIRE_NUMBER_ROW(name, range, feature) \
  {feature, #name, params.name != neutral.name, neutral.name == 0 ? "0" : "1"},
#define QUIRE_LIST_ROW(name, most, feature) {feature, #name, !params.name.empty(), "[]"},
      QUIRE_SAMPLING_NUMBERS(QUIRE_NUMBER_ROW) QUIRE_SAMPLING_LISTS(QUIRE_LIST_ROW)
#undef QUIRE_NUMBER_ROW
#undef QUIRE_LIST_ROW
          {kFeatureLogitBias, "logit_bias", !options.logit_bias.empty(), "{}"},
      {kFeatureBadWords, "bad_words", !options.bad_words.empty(), "[]"},
      {kFeatureLogprobs, "logprobs", options.logprobs.has_value(), "null"},
      {kFeatureBeamSearch, "use_beam_search", options.use_beam_search, "false"},
      {kFeaturePromptLogprobs, "prompt_logprobs", params.prompt_logprobs > 0, "null"},
      {kFeaturePromptLogprobs, "max_tokens", params.max_tokens == 0, "1"},
  };
  for (const Row& row : rows) {
    if (row.used && !row.feature.empty() && !Serves(model, row.feature)) {
      return Unserved(row.field, row.neutral);
    }
  }
  return std::nullopt;
}

// Only its own parameters steer a beam search.
std::optional<ApiError> CheckBeams(const SamplingOptions& options, const SamplingParams& params,
                                   const std::vector<TokenId>& eos_token_ids) {
  struct Row {
    std::string_view field;
    bool used;
  };
  if (!options.use_beam_search) {
    for (const Row& row :
         {Row{"length_penalty", params.length_penalty != 1.0f},
          Row{"early_stopping", options.early_stopping != EarlyStopping::kHeuristic}}) {
      if (row.used) return InvalidField(row.field, "needs use_beam_search");
    }
    return std::nullopt;
  }
  const Row rows[] = {
      {"repetition_penalty", options.repetition_penalty.value_or(1.0f) != 1.0f},
      {"frequency_penalty", params.frequency_penalty != 0.0f},
      {"presence_penalty", params.presence_penalty != 0.0f},
      {"logit_bias", !options.logit_bias.empty()},
      {"allowed_token_ids", !options.allowed_token_ids.empty()},
      {"bad_words", !options.bad_words.empty()},
      {"prompt_logprobs", options.prompt_logprobs.has_value()},
  };
  for (const Row& row : rows) {
    if (row.used) return InvalidField(row.field, "cannot be used together with use_beam_search");
  }
  if (options.n > kMaxBeamWidth) return OutOfRange("n", 1, kMaxBeamWidth);
  std::set<TokenId> ends(options.stop_token_ids.begin(), options.stop_token_ids.end());
  if (!options.ignore_eos) ends.insert(eos_token_ids.begin(), eos_token_ids.end());
  const size_t most = static_cast<size_t>(kMaxLogprobs - options.n);
  if (ends.size() <= most) return std::nullopt;
  return InvalidField("stop_token_ids", "a search with " + std::to_string(options.n) +
                                            " beams leaves room for " + std::to_string(most) +
                                            " tokens that end it, the model's own included");
}

std::optional<ApiError> CheckCounts(const SamplingOptions& options, const ModelFacts& model,
                                    const RouterLimits& limits) {
  const int64_t max_choices = Serves(model, kFeatureChoices)
                                  ? std::clamp<int64_t>(model.limits.max_choices, 1, kMaxChoices)
                                  : 1;
  if (options.n < 1 || options.n > max_choices) return OutOfRange("n", 1, max_choices);
  // A limit of 0 is one that the worker does not state.
  const auto limit = [](uint32_t workers, int64_t ours) {
    return workers == 0 ? ours : std::min<int64_t>(workers, ours);
  };
  const int64_t logprobs = limit(model.limits.max_logprobs, kMaxLogprobs);
  if (options.logprobs && (*options.logprobs < 0 || *options.logprobs > logprobs)) {
    return OutOfRange("logprobs", 0, logprobs);
  }
  if (options.prompt_logprobs &&
      (*options.prompt_logprobs < 0 || *options.prompt_logprobs > logprobs)) {
    return OutOfRange("prompt_logprobs", 0, logprobs);
  }
  const int64_t stop_ids = limit(model.limits.max_stop_token_ids, kMaxStopTokenIds);
  if (static_cast<int64_t>(options.stop_token_ids.size()) > stop_ids) {
    return InvalidField("stop_token_ids",
                        "has more ids than are served, " + std::to_string(stop_ids));
  }
  const int64_t biases = limit(model.limits.max_logit_bias, kMaxLogitBias);
  if (static_cast<int64_t>(options.logit_bias.size()) > biases) {
    return InvalidField("logit_bias",
                        "has more entries than are served, " + std::to_string(biases));
  }
  if (auto error = CheckStrings("stop", options.stop, limits.max_stop_strings,
                                limits.max_stop_string_bytes)) {
    return error;
  }
  return CheckStrings("bad_words", options.bad_words, limits.max_bad_words,
                      limits.max_bad_word_bytes);
}

}  // namespace

Result<SamplingParams> ResolveSampling(const SamplingOptions& options,
                                       const GenerationSettings& defaults, const ModelFacts& model,
                                       const RouterLimits& limits, uint64_t fresh_seed) {
  SamplingParams params;
  SetNumbers(options, defaults, model, params);
  params.seed = options.seed.value_or(fresh_seed);
#define QUIRE_SET_LIST(name, most, feature) params.name = options.name;
  QUIRE_SAMPLING_LISTS(QUIRE_SET_LIST)
#undef QUIRE_SET_LIST
  params.ignore_eos = options.ignore_eos;
  params.logit_bias.assign(options.logit_bias.begin(), options.logit_bias.end());
  params.logprobs = options.logprobs ? 1 + std::clamp(*options.logprobs, 0, kMaxLogprobs) : 0;
  if (options.prompt_logprobs) {
    params.prompt_logprobs = 1 + std::clamp(*options.prompt_logprobs, 0, kMaxLogprobs);
  }
  params.early_stopping = options.early_stopping;
  if (absl::Status valid = ValidateSamplingParams(params, static_cast<int32_t>(model.vocab_size));
      !valid.ok()) {
    return FromRangeError(valid);
  }
  if (auto error = CheckServed(options, params, model)) return *error;
  if (auto error = CheckCounts(options, model, limits)) return *error;
  if (auto error = CheckBeams(options, params, defaults.eos_token_ids)) return *error;
  if (options.use_beam_search) {
    params.beam_width = options.n;
    params.repetition_penalty = 1.0f;  // a default of the model is not the client's choice
  }
  return params;
}

Result<int32_t> ResolveMaxTokens(const SamplingOptions& options, const PromptSize& prompt,
                                 const ModelFacts& model, bool rest_of_context) {
  if (prompt.tokens >= model.max_model_len) return TooLong(prompt, model);
  const int32_t rest = static_cast<int32_t>(model.max_model_len - prompt.tokens);
  if (!options.max_tokens) return rest_of_context ? rest : std::min(rest, kCompletionMaxTokens);
  if (options.max_tokens_at_most && *options.max_tokens > rest) return rest;
  if (*options.max_tokens < 0 || *options.max_tokens > rest) {
    return InvalidField(options.max_tokens_field,
                        "is " + std::to_string(*options.max_tokens) + "; the prompt of " +
                            std::to_string(prompt.tokens) + " tokens leaves [1, " +
                            std::to_string(rest) + "] of the context of " +
                            std::to_string(model.max_model_len) + " tokens of model " + model.name);
  }
  return *options.max_tokens;
}

}  // namespace quire
