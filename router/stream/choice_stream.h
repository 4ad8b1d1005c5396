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
//  4. With a reading, the text comes apart into content, thoughts and tool calls behind the stop
//     strings: these see it as it is written, and what they hold back waits with its marks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/wire/values.h"
#include "router/core/answer_format.h"
#include "router/core/api.h"
#include "router/core/model_text.h"
#include "router/stream/answer_reader.h"
#include "router/stream/stop_matcher.h"

namespace quire {

// The options that all choices of a request share.
struct ChoiceStreamOptions {
  StopPatterns stop{{}};  // of at most 16 strings, valid UTF-8
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  bool want_text = true;                 // false: only ids; stop strings still end the choice
  std::set<TokenId> stop_token_ids;      // ids that end the choice, including end-of-sequence ids
  uint64_t min_tokens = 0;               // no output before this index ends the choice
  bool constrained = false;              // except for such an id, by which a constraint is met
  std::optional<AnswerReading> reading;  // none: all text is content
  std::shared_ptr<const AnswerFormat> format;  // with `reading`
};

// A token as clients see it.
TokenLogprob MakeTokenLogprob(const ModelText& text, TokenId id, float logprob);
std::vector<TokenLogprob> MakeTopLogprobs(const ModelText& text, const TopLogprobs& top);

class ChoiceStream {
 public:
  ChoiceStream(std::shared_ptr<const ChoiceStreamOptions> options, uint32_t choice,
               const ModelText& text);

  // Adds an output. When it completes the choice, by a stop string or with the one call that it may
  // have, the last delta ends there and complete() is true.
  Deltas Append(const Output& output);
  // The choice ended for another reason: returns what was held back. May complete a stop string,
  // too.
  Deltas Finish();
  // Outputs that the client already has: they count and set the state, and add no delta.
  void Replay(std::span<const TokenId> ids);

  const std::optional<std::string>& stop_string() const { return stop_string_; }
  bool complete() const { return stop_string_ || (reader_ && reader_->complete()); }
  // Whether the answer has calls and none was cut.
  bool calls_tools() const { return reader_ && reader_->calls() > 0 && !cut_in_call_; }
  // The limit of an answer's calls that it went past, by its name; empty: none.
  std::string_view limit() const { return reader_ ? reader_->limit() : ""; }
  uint64_t completion_tokens() const { return count_; }
  uint64_t reasoning_tokens() const { return reasoning_; }
  uint64_t text_bytes() const { return text_bytes_; }

 private:
  // A token that is a mark, or is skipped, between texts that are held back.
  struct HeldToken {
    size_t at;    // in held_
    size_t size;  // of its own text there, 0 where that is skipped
    TokenId id;
  };

  // Appends the text of one token. True when it completed the choice.
  bool AppendToken(TokenId id, Deltas& out);
  bool AppendMark(TokenId id, bool silent, Deltas& out);
  bool AppendText(std::string_view piece, Deltas& out);
  // Shows what is held, up to `size` bytes.
  void Release(size_t size, Deltas& out);
  void ShowText(std::string_view text, Deltas& out);
  void ShowToken(TokenId id, bool skipped, Deltas& out);
  void EndReading(Deltas& out);
  Deltas NewDeltas() const;
  TokenLogprob LogprobOf(const Output& output, size_t index) const;

  const std::shared_ptr<const ChoiceStreamOptions> options_;
  const uint32_t choice_;
  const ModelText& text_;
  std::unique_ptr<TextDecoder> decoder_;  // nullptr when neither text nor stop strings are needed
  StopMatcher matcher_;
  std::unique_ptr<AnswerReader> reader_;  // nullptr when all text is content
  std::string held_;                      // decoded, not yet shown
  std::vector<HeldToken> held_tokens_;    // in order
  std::optional<std::string> stop_string_;
  uint64_t count_ = 0;
  uint64_t reasoning_ = 0;  // tokens of thoughts
  bool cut_in_call_ = false;
  uint64_t text_bytes_ = 0;
  bool finished_ = false;
};

}  // namespace quire
