#include "router/core/sampling_checks.h"

#include <string>
#include <string_view>

#include "common/utf8.h"

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
Problem CheckRange(std::string_view field, const std::optional<Number>& value,
                   const NumberRange& range) {
  if (!value || range.Holds(static_cast<double>(*value))) return std::nullopt;
  return OutOf(field, range.text);
}

Problem CheckNumbers(const SamplingOptions& o, bool echo) {
#define QUIRE_CHECK_NUMBER(name, range, feature) \
  if (auto problem = CheckRange(#name, o.name, NumberRange(range))) return problem;
  QUIRE_SAMPLING_NUMBERS(QUIRE_CHECK_NUMBER)
#undef QUIRE_CHECK_NUMBER
  if (o.max_tokens == 0 && !echo && !o.prompt_logprobs) {
    return Refuse("max_tokens", "0 is served with echo or prompt_logprobs only; use 1 or more");
  }
  if (o.min_tokens && o.max_tokens && *o.min_tokens > *o.max_tokens) {
    return OutOf("min_tokens", "[0, max_tokens]");
  }
  if (o.n < 1 || o.n > kMaxChoices) return OutOf("n", "[1, " + std::to_string(kMaxChoices) + "]");
  if (auto problem = CheckRange("logprobs", o.logprobs, NumberRange("[0, 20]"))) return problem;
  return CheckRange("prompt_logprobs", o.prompt_logprobs, NumberRange("[0, 20]"));
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

std::optional<ApiError> CheckStrings(std::string_view field,
                                     const std::vector<std::string>& strings, size_t max_count,
                                     size_t max_bytes) {
  if (strings.size() > max_count) {
    return Refuse(field, "has " + std::to_string(strings.size()) + " entries; at most " +
                             std::to_string(max_count) + " are served");
  }
  for (const std::string& s : strings) {
    if (s.empty()) return Refuse(field, "an entry is empty; it needs at least one character");
    if (!IsValidUtf8(s)) return Refuse(field, "an entry is not valid UTF-8");
    if (s.size() > max_bytes) {
      return Refuse(field, "an entry has " + std::to_string(s.size()) + " bytes; at most " +
                               std::to_string(max_bytes) + " are served");
    }
  }
  return std::nullopt;
}

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
#define QUIRE_CHECK_LIST(name, most, feature) \
  if (auto problem = CheckIds(#name, options.name, most)) return problem;
  QUIRE_SAMPLING_LISTS(QUIRE_CHECK_LIST)
#undef QUIRE_CHECK_LIST
  if (options.logit_bias.size() > kMaxLogitBias) {
    return Refuse("logit_bias", "has " + std::to_string(options.logit_bias.size()) +
                                    " entries; at most " + std::to_string(kMaxLogitBias) +
                                    " are served");
  }
  for (const auto& [id, bias] : options.logit_bias) {
    if (id < 0) return Refuse("logit_bias", "token ids must not be negative");
    if (auto problem = CheckRange("logit_bias", std::optional(bias), NumberRange("[-100, 100]")))
      return problem;
  }
  return std::nullopt;
}

}  // namespace quire
