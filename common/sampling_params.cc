#include "common/sampling_params.h"

#include <cmath>
#include <string_view>

namespace quire {
namespace {

absl::Status CheckRange(std::string_view field, double value, bool in_range,
                        std::string_view range) {
  if (std::isfinite(value) && in_range) return absl::OkStatus();
  return InvalidArgument(std::string(field) + ": must be in " + std::string(range));
}

absl::Status CheckCount(std::string_view field, size_t count, size_t limit) {
  if (count <= limit) return absl::OkStatus();
  return InvalidArgument(std::string(field) + ": has " + std::to_string(count) +
                         " entries; at most " + std::to_string(limit) + " are served");
}

absl::Status CheckToken(std::string_view field, TokenId id, int32_t vocab_size) {
  if (id >= 0 && id < vocab_size) return absl::OkStatus();
  return InvalidArgument(std::string(field) + ": token id " + std::to_string(id) +
                         " is outside the vocabulary [0, " + std::to_string(vocab_size) + ")");
}

absl::Status ValidateNumbers(const SamplingParams& p) {
  QUIRE_RETURN_IF_ERROR(CheckRange("temperature", p.temperature,
                                   p.temperature >= 0 && p.temperature <= 100, "[0, 100]"));
  QUIRE_RETURN_IF_ERROR(CheckRange("top_p", p.top_p, p.top_p > 0 && p.top_p <= 1, "(0, 1]"));
  QUIRE_RETURN_IF_ERROR(CheckRange("top_k", p.top_k, p.top_k >= 0, "[0, 2147483647] (0 is off)"));
  QUIRE_RETURN_IF_ERROR(CheckRange("min_p", p.min_p, p.min_p >= 0 && p.min_p <= 1, "[0, 1]"));
  QUIRE_RETURN_IF_ERROR(
      CheckRange("typical_p", p.typical_p, p.typical_p > 0 && p.typical_p <= 1, "(0, 1]"));
  QUIRE_RETURN_IF_ERROR(CheckRange("repetition_penalty", p.repetition_penalty,
                                   p.repetition_penalty > 0 && p.repetition_penalty <= 10,
                                   "(0, 10]"));
  QUIRE_RETURN_IF_ERROR(CheckRange("frequency_penalty", p.frequency_penalty,
                                   std::fabs(p.frequency_penalty) <= 2, "[-2, 2]"));
  QUIRE_RETURN_IF_ERROR(CheckRange("presence_penalty", p.presence_penalty,
                                   std::fabs(p.presence_penalty) <= 2, "[-2, 2]"));
  QUIRE_RETURN_IF_ERROR(
      CheckRange("max_tokens", p.max_tokens, p.max_tokens >= 0, "[0, max_model_len - prompt]"));
  QUIRE_RETURN_IF_ERROR(CheckRange("min_tokens", p.min_tokens,
                                   p.min_tokens >= 0 && p.min_tokens <= p.max_tokens,
                                   "[0, max_tokens]"));
  QUIRE_RETURN_IF_ERROR(CheckRange("logprobs", p.logprobs,
                                   p.logprobs >= 0 && p.logprobs <= kMaxLogprobs + 1, "[0, 20]"));
  QUIRE_RETURN_IF_ERROR(CheckRange("prompt_logprobs", p.prompt_logprobs,
                                   p.prompt_logprobs >= 0 && p.prompt_logprobs <= kMaxLogprobs + 1,
                                   "[0, 20]"));
  QUIRE_RETURN_IF_ERROR(CheckRange("beam_width", p.beam_width,
                                   p.beam_width >= 0 && p.beam_width <= kMaxBeamWidth, "[0, 16]"));
  return CheckRange("length_penalty", p.length_penalty, std::fabs(p.length_penalty) <= 10,
                    "[-10, 10]");
}

absl::Status ValidateTokens(const SamplingParams& p, int32_t vocab_size) {
  QUIRE_RETURN_IF_ERROR(CheckCount("stop_token_ids", p.stop_token_ids.size(), kMaxStopTokenIds));
  for (TokenId id : p.stop_token_ids) {
    QUIRE_RETURN_IF_ERROR(CheckToken("stop_token_ids", id, vocab_size));
  }
  QUIRE_RETURN_IF_ERROR(CheckCount("logit_bias", p.logit_bias.size(), kMaxLogitBias));
  for (const auto& [id, bias] : p.logit_bias) {
    QUIRE_RETURN_IF_ERROR(CheckToken("logit_bias", id, vocab_size));
    QUIRE_RETURN_IF_ERROR(CheckRange("logit_bias", bias, std::fabs(bias) <= 100, "[-100, 100]"));
  }
  QUIRE_RETURN_IF_ERROR(
      CheckCount("allowed_token_ids", p.allowed_token_ids.size(), kMaxAllowedTokenIds));
  for (TokenId id : p.allowed_token_ids) {
    QUIRE_RETURN_IF_ERROR(CheckToken("allowed_token_ids", id, vocab_size));
  }
  QUIRE_RETURN_IF_ERROR(CheckCount("bad_words", p.bad_words.size(), kMaxBadWords));
  for (const std::vector<TokenId>& word : p.bad_words) {
    if (word.empty()) return InvalidArgument("bad_words: a word is empty; it needs one token");
    QUIRE_RETURN_IF_ERROR(CheckCount("bad_words", word.size(), kMaxBadWordTokens));
    for (TokenId id : word) QUIRE_RETURN_IF_ERROR(CheckToken("bad_words", id, vocab_size));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSamplingParams(const SamplingParams& params, int32_t vocab_size) {
  QUIRE_RETURN_IF_ERROR(ValidateNumbers(params));
  return ValidateTokens(params, vocab_size);
}

}  // namespace quire
