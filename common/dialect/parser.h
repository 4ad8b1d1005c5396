// A model's answer taken apart while it comes: content, thoughts and tool calls.
//
// One choice of one answer owns a parser, on one thread. Input is hostile. Invariants:
//  1. The joined deltas are a function of the input alone, not of how it was cut; text that may
//     begin a mark is held back until it does or does not.
//  2. Time is linear in the input, memory bounded by Limits.
//  3. No input is an error: what is no call becomes content without marks, or arguments as they
//  were
//     written; no byte of text is dropped but marks and the white space that belongs to them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/dialect/dialect.h"
#include "common/dialect/emitter.h"
#include "common/dialect/tool_types.h"

namespace quire::dialect {

struct ParserOptions {
  const Dialect* dialect = nullptr;    // null: no calls
  const Thoughts* thoughts = nullptr;  // null: no thoughts
  bool thought_opened = false;         // the prompt ended inside a thought
  // Special tokens come as such, and text that looks like one is text. False: raw text.
  bool tokens = false;
  bool calls = true;                       // false: what would be a call is content
  std::shared_ptr<const ToolTypes> types;  // of the request's tools; null: unknown
  Limits limits;
};

class Reader;

class Parser {
 public:
  explicit Parser(const ParserOptions& options);
  ~Parser();
  Parser(Parser&&) noexcept;

  // Takes further text of the answer, or one special token. The events since the last call; valid
  // until the next one.
  std::span<const Event> Text(std::string_view text);
  std::span<const Event> Special(std::string_view token);
  // The answer is over: what was held back is released.
  std::span<const Event> Finish();

  // Which limit was hit first, by its name in Limits; empty: none.
  std::string_view limit() const;
  // What the input so far ends in.
  bool in_thought() const;
  bool in_call() const;

 private:
  std::unique_ptr<Reader> reader_;
};

// All of an answer at once, for commands and tests.
struct Answer {
  struct Call {
    std::string name, arguments, id;
    bool operator==(const Call&) const = default;
  };
  std::string content, reasoning;
  std::vector<Call> calls;

  void Add(std::span<const Event> events);
  bool operator==(const Answer&) const = default;
};

}  // namespace quire::dialect
