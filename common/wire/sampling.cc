#include "common/wire/sampling.h"

#include <algorithm>
#include <string_view>

namespace quire {
namespace {

absl::Status CheckRange(std::string_view field, double value, const NumberRange& range) {
  if (range.Holds(value)) return absl::OkStatus();
  return InvalidArgument(std::string(field) + ": must be in " + std::string(range.text));
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
#define QUIRE_CHECK_NUMBER(name, range, feature) \
  QUIRE_RETURN_IF_ERROR(CheckRange(#name, p.name, NumberRange(range)));
  QUIRE_SAMPLING_NUMBERS(QUIRE_CHECK_NUMBER)
#undef QUIRE_CHECK_NUMBER
  if (p.min_tokens > p.max_tokens) {
    return InvalidArgument("min_tokens: must be in [0, max_tokens]");
  }
  for (const auto& [field, value] :
       {std::pair("logprobs", p.logprobs), std::pair("prompt_logprobs", p.prompt_logprobs)}) {
    // One more than a client asks for.
    if (value < 0 || value > kMaxLogprobs + 1) {
      return InvalidArgument(std::string(field) + ": must be in [0, 20]");
    }
  }
  return CheckRange("beam_width", p.beam_width, NumberRange("[0, 16]"));
}

absl::Status ValidateTokens(const SamplingParams& p, int32_t vocab_size) {
#define QUIRE_CHECK_LIST(name, most, feature)                    \
  QUIRE_RETURN_IF_ERROR(CheckCount(#name, p.name.size(), most)); \
  for (const TokenId id : p.name) {                              \
    QUIRE_RETURN_IF_ERROR(CheckToken(#name, id, vocab_size));    \
  }
  QUIRE_SAMPLING_LISTS(QUIRE_CHECK_LIST)
#undef QUIRE_CHECK_LIST
  QUIRE_RETURN_IF_ERROR(CheckCount("logit_bias", p.logit_bias.size(), kMaxLogitBias));
  for (const auto& [id, bias] : p.logit_bias) {
    QUIRE_RETURN_IF_ERROR(CheckToken("logit_bias", id, vocab_size));
    QUIRE_RETURN_IF_ERROR(CheckRange("logit_bias", bias, NumberRange("[-100, 100]")));
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
