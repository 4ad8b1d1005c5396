// How one request samples its tokens, with every default resolved: plain data, checked at the edge
// and when it is decoded from the wire.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "kernels/sampling/sample_row.h"

namespace quire {

inline constexpr int kMaxLogprobs = 20;
inline constexpr int kMaxStopTokenIds = 128;
inline constexpr int kMaxLogitBias = 300;
inline constexpr int kMaxAllowedTokenIds = 4096;
inline constexpr int kMaxBadWords = 128;
inline constexpr int kMaxBadWordTokens = 64;
inline constexpr int kMaxChoices = 128;
inline constexpr int kMaxBeamWidth = 16;

// When a beam search stops the beams that still run.
enum class EarlyStopping : uint8_t {
  kHeuristic,  // as many answers as beams, and the best beam, at its current length, is no better
  kWhenFull,   // as many answers as beams
  kNever,      // as many answers as beams, and no beam could become better at any length
};

struct SamplingParams : kernels::SampleNumbers {
  int32_t max_tokens = 16;  // ≥ 0; outputs in all, resumed ones included
  int32_t min_tokens = 0;
  float length_penalty = 1.0f;  // of a beam search
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  std::vector<std::pair<TokenId, float>> logit_bias;  // each bias in [−100, 100]
  std::vector<TokenId> allowed_token_ids;
  std::vector<std::vector<TokenId>> bad_words;
  int32_t prompt_logprobs = 0;  // as logprobs, of prompt tokens
  int32_t beam_width = 0;       // 0 is no beam search
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
};

// The rows of the fields below: each field that is one number, or a list of token ids, is declared
// as a member of SamplingParams and here. These derive from the rows: what clients may set
// (SamplingOptions), JSON, gRPC, the Open Inference Protocol, ranges and their errors, the features
// that workers list, the wire and the packets of ranks. Both protos name the field, too.
//   NUMBER(name, range, feature)  `range`: "(0, 1]"; an end in words is no bound, and what follows
//                                 the bracket is for people
//   LIST(name, most, feature)     `most`: entries that are served
// `feature`: what a worker has to list for a value that is not neutral; "": none.
#define QUIRE_SAMPLING_NUMBERS(NUMBER)                       \
  NUMBER(temperature, "[0, 100]", "")                        \
  NUMBER(top_p, "(0, 1]", "")                                \
  NUMBER(min_p, "[0, 1]", "")                                \
  NUMBER(typical_p, "(0, 1]", kFeatureTypicalP)              \
  NUMBER(repetition_penalty, "(0, 10]", kFeaturePenalties)   \
  NUMBER(frequency_penalty, "[-2, 2]", kFeaturePenalties)    \
  NUMBER(presence_penalty, "[-2, 2]", kFeaturePenalties)     \
  NUMBER(length_penalty, "[-10, 10]", "")                    \
  NUMBER(top_k, "[-1, 2147483647] (-1 and 0 are off)", "")   \
  NUMBER(max_tokens, "[0, the context less the prompt]", "") \
  NUMBER(min_tokens, "[0, max_tokens]", kFeatureMinTokens)
#define QUIRE_SAMPLING_LISTS(LIST)           \
  LIST(stop_token_ids, kMaxStopTokenIds, "") \
  LIST(allowed_token_ids, kMaxAllowedTokenIds, kFeatureAllowedTokenIds)

// A range as its errors write it.
struct NumberRange {
  consteval explicit NumberRange(std::string_view written)
      : text(written), open(written.front() == '(') {
    const size_t comma = written.find(", "), bracket = written.find(']');
    low = End(written.substr(1, comma - 1), low);
    high = End(written.substr(comma + 2, bracket - comma - 2), high);
  }
  constexpr bool Holds(double value) const {  // false for NaN
    return (open ? value > low : value >= low) && value <= high;
  }

  std::string_view text;
  bool open;  // the lower end is outside
  double low = std::numeric_limits<double>::lowest();
  double high = std::numeric_limits<double>::max();

 private:
  static constexpr double End(std::string_view number, double unbounded) {
    const bool negative = number.front() == '-';
    double value = 0;
    for (const char digit : number.substr(negative ? 1 : 0)) {
      if (digit < '0' || digit > '9') return unbounded;
      value = value * 10 + (digit - '0');
    }
    return negative ? -value : value;
  }
};

// INVALID_ARGUMENT naming the first field out of its range, with the range. `vocab_size` bounds
// token ids.
absl::Status ValidateSamplingParams(const SamplingParams& params, int32_t vocab_size);

}  // namespace quire
