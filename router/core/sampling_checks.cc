#include "router/core/sampling_checks.h"

#include <cmath>
#include <string>
#include <string_view>

#include "common/sampling_params.h"

namespace quire {
namespace {

using Problem = std::optional<ApiError>;

Problem Refuse(std::string_view field, std::string message) {
  return ApiError{ApiCode::kInvalidArgument, std::string(field) + ": " + std::move(message),
                  std::string(field), 0};
}

Problem OutOf(std::string_view field, std::string_view range) {
  return Refuse(field, "must be in " + std::string(range));
}

template <class Number>
bool Within(const std::optional<Number>& value, double low, double high) {
  return !value || (std::isfinite(static_cast<double>(*value)) && *value >= low && *value <= high);
}

// (0, high]
bool Positive(const std::optional<float>& value, double high) {
  return !value || (std::isfinite(*value) && *value > 0 && *value <= high);
}

Problem CheckNumbers(const SamplingOptions& o, bool echo) {
  if (!Within(o.temperature, 0, 100)) return OutOf("temperature", "[0, 100]");
  if (!Positive(o.top_p, 1)) return OutOf("top_p", "(0, 1]");
  if (!Within(o.top_k, -1, INT32_MAX)) return OutOf("top_k", "[-1, 2147483647] (-1 and 0 are off)");
  if (!Within(o.min_p, 0, 1)) return OutOf("min_p", "[0, 1]");
  if (!Positive(o.typical_p, 1)) return OutOf("typical_p", "(0, 1]");
  if (!Positive(o.repetition_penalty, 10)) return OutOf("repetition_penalty", "(0, 10]");
  if (!Within(o.frequency_penalty, -2, 2)) return OutOf("frequency_penalty", "[-2, 2]");
  if (!Within(o.presence_penalty, -2, 2)) return OutOf("presence_penalty", "[-2, 2]");
  if (!Within(o.max_tokens, 0, INT32_MAX)) {
    return OutOf("max_tokens", "[1, the context less the prompt]");
  }
  if (o.max_tokens == 0 && !echo && !o.prompt_logprobs) {
    return Refuse("max_tokens", "0 is served with echo or prompt_logprobs only; use 1 or more");
  }
  if (!Within(o.min_tokens, 0, o.max_tokens.value_or(INT32_MAX))) {
    return OutOf("min_tokens", "[0, max_tokens]");
  }
  if (o.n < 1 || o.n > kMaxChoices) return OutOf("n", "[1, " + std::to_string(kMaxChoices) + "]");
  if (!Within(o.logprobs, 0, kMaxLogprobs)) return OutOf("logprobs", "[0, 20]");
  if (!Within(o.prompt_logprobs, 0, kMaxLogprobs)) return OutOf("prompt_logprobs", "[0, 20]");
  if (!std::isfinite(o.length_penalty) || std::fabs(o.length_penalty) > 10) {
    return OutOf("length_penalty", "[-10, 10]");
  }
  return std::nullopt;
}

Problem CheckStrings(std::string_view field, const std::vector<std::string>& strings,
                     size_t max_count, size_t max_bytes) {
  if (strings.size() > max_count) {
    return Refuse(field, "has " + std::to_string(strings.size()) + " entries; at most " +
                             std::to_string(max_count) + " are served");
  }
  for (const std::string& s : strings) {
    if (s.empty()) return Refuse(field, "an entry is empty; it needs at least one character");
    if (s.size() > max_bytes) {
      return Refuse(field, "an entry has " + std::to_string(s.size()) + " bytes; at most " +
                               std::to_string(max_bytes) + " are served");
    }
  }
  return std::nullopt;
}

Problem CheckIds(std::string_view field, const std::vector<TokenId>& ids, size_t max_count) {
  if (ids.size() > max_count) {
    return Refuse(field, "has " + std::to_string(ids.size()) + " entries; at most " +
                             std::to_string(max_count) + " are served");
  }
  for (TokenId id : ids) {
    if (id < 0) return Refuse(field, "token ids must not be negative");
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> CheckTruncation(const std::optional<int32_t>& truncate_prompt_tokens) {
  if (!truncate_prompt_tokens || *truncate_prompt_tokens == -1 || *truncate_prompt_tokens >= 1) {
    return std::nullopt;
  }
  return Refuse("truncate_prompt_tokens", "must be -1 or in [1, the model's context]");
}

std::optional<ApiError> CheckSampling(const SamplingOptions& options, bool echo) {
  if (auto problem = CheckNumbers(options, echo)) return problem;
  if (auto problem = CheckStrings("stop", options.stop, kMaxStopStrings, kMaxStopStringBytes)) {
    return problem;
  }
  if (auto problem =
          CheckStrings("bad_words", options.bad_words, kMaxBadWordStrings, kMaxBadWordBytes)) {
    return problem;
  }
  if (auto problem = CheckIds("stop_token_ids", options.stop_token_ids, kMaxStopTokenIds)) {
    return problem;
  }
  if (auto problem =
          CheckIds("allowed_token_ids", options.allowed_token_ids, kMaxAllowedTokenIds)) {
    return problem;
  }
  if (options.logit_bias.size() > kMaxLogitBias) {
    return Refuse("logit_bias", "has " + std::to_string(options.logit_bias.size()) +
                                    " entries; at most " + std::to_string(kMaxLogitBias) +
                                    " are served");
  }
  for (const auto& [id, bias] : options.logit_bias) {
    if (id < 0) return Refuse("logit_bias", "token ids must not be negative");
    if (!std::isfinite(bias) || std::fabs(bias) > 100) return OutOf("logit_bias", "[-100, 100]");
  }
  return std::nullopt;
}

}  // namespace quire
