// The text of one choice taken apart into content, thoughts and tool calls.
//
// Owner: a ChoiceStream. Invariants:
//  1. What it delivers is a function of its input: joined, it does not depend on how that was cut.
//  2. Within a Delta thoughts come before content, and content before calls; where the model wrote
//     them in another order, the next Delta continues.
//  3. The ids of calls are a function of the model, the prompt, the seed, the choice and the call.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "common/block_hash.h"
#include "common/dialect/parser.h"
#include "router/core/api.h"

namespace quire {

// What an output of a choice says, in order. Token ids are in the last one that a token adds to.
using Deltas = absl::InlinedVector<Delta, 1>;

// What all choices of a request share.
struct AnswerReading {
  dialect::ParserOptions parser;
  bool one_call = false;  // the answer is complete at the end of its first call
  BlockHash id_key;       // the ids of calls are made of it
};

class AnswerReader {
 public:
  AnswerReader(const AnswerReading& reading, uint32_t choice);

  // `out` is not empty.
  void Text(std::string_view text, Deltas& out) { Add(parser_.Text(text), out); }
  void Special(std::string_view token, Deltas& out) { Add(parser_.Special(token), out); }
  void Finish(Deltas& out) { Add(parser_.Finish(), out); }

  bool in_thought() const { return parser_.in_thought(); }
  bool in_call() const { return parser_.in_call(); }
  uint32_t calls() const { return calls_; }
  bool complete() const { return complete_; }
  std::string_view limit() const { return parser_.limit(); }

 private:
  void Add(std::span<const dialect::Event> events, Deltas& out);
  std::string IdOf(const dialect::Event& begin);

  const AnswerReading& reading_;
  const uint32_t choice_;
  dialect::Parser parser_;
  uint32_t calls_ = 0;
  std::set<std::string> ids_;
  bool complete_ = false;
};

// A call's id that no other call of the same key has: "call_" and 24 letters and digits, or as the
// dialect demands it.
std::string MakeCallId(dialect::CallIds form, BlockHash key, uint32_t choice, uint32_t call);

}  // namespace quire
