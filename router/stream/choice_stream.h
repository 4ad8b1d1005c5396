// One choice of an answer: accepted tokens become text, up to a stop string or the end.
//
// Owner: one request of the pipeline, on the router's executor. The ModelText outlives it; the
// options are shared by the streams of the request's choices.
//  1. Token ids never run ahead of what counts: after a stop string they end with the token that
//     completed it, and so does completion_tokens().
//  2. Text is shown once it can no longer become part of a stop string; a stop string itself is
//     shown only if the request includes it. All deltas together are the same text for any split of
//     the tokens.
//  3. A token that ended the choice by its id adds no text, unless stop strings are to be included.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/wire/values.h"
#include "router/core/api.h"
#include "router/core/model_text.h"
#include "router/stream/stop_matcher.h"

namespace quire {

// The options that all choices of a request share.
struct ChoiceStreamOptions {
  StopPatterns stop{{}};  // of at most 16 strings, valid UTF-8
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  bool want_text = true;             // false: only ids; stop strings still end the choice
  std::set<TokenId> stop_token_ids;  // ids that end the choice, including end-of-sequence ids
  uint64_t min_tokens = 0;           // no output before this index ends the choice
};

// A token as clients see it.
TokenLogprob MakeTokenLogprob(const ModelText& text, TokenId id, float logprob);
std::vector<TokenLogprob> MakeTopLogprobs(const ModelText& text, const TopLogprobs& top);

class ChoiceStream {
 public:
  ChoiceStream(std::shared_ptr<const ChoiceStreamOptions> options, uint32_t choice,
               const ModelText& text);

  // Adds an output. When it completes a stop string, the delta ends there and stop_string() is set.
  Delta Append(const Output& output);
  // The choice ended for another reason: returns the held-back text. May complete a stop string,
  // too.
  Delta Finish();
  // Outputs that the client already has: they count and set the state, and add no delta.
  void Replay(std::span<const TokenId> ids);

  const std::optional<std::string>& stop_string() const { return stop_string_; }
  uint64_t completion_tokens() const { return count_; }
  uint64_t text_bytes() const { return text_bytes_; }

 private:
  // Appends the text of one token. True when it completed a stop string.
  bool AppendToken(TokenId id, std::string& out);
  bool AppendText(std::string_view piece, std::string& out);
  TokenLogprob LogprobOf(const Output& output, size_t index) const;

  const std::shared_ptr<const ChoiceStreamOptions> options_;
  const uint32_t choice_;
  const ModelText& text_;
  std::unique_ptr<TextDecoder> decoder_;  // nullptr when neither text nor stop strings are needed
  StopMatcher matcher_;
  std::string held_;  // decoded, not yet shown
  std::optional<std::string> stop_string_;
  uint64_t count_ = 0;
  uint64_t text_bytes_ = 0;
  bool finished_ = false;
};

}  // namespace quire
