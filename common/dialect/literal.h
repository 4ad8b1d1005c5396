// One value in Python's spelling, or in that of Gemma's calls, read in pieces and written as JSON.
//
// Owned by the reader of a call. What is no literal becomes a string of its text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/dialect/emitter.h"
#include "common/dialect/tool_types.h"

namespace quire::dialect {

class Literal {
 public:
  struct Spelling {
    std::string_view quote = {};       // both sides of a string; empty: Python's quotes
    bool token = false;                // the quote comes as a special token alone
    const ToolTypes* types = nullptr;  // of the members of the outermost object
    std::string_view function = {};
  };

  Literal(const Spelling& spelling, const Limits& limits) : spelling_(spelling), limits_(limits) {}

  // Takes a prefix of `text`; `out` grows by JSON.
  void Take(std::string_view& text, bool more, std::string& out);
  // The quote as a special token.
  void TakeQuote(std::string& out);
  // The text ends inside the value: what was read is written.
  void End(std::string& out);

  bool done() const { return state_ == State::kDone; }
  // What follows fits no literal, or nests too deep; it was not taken.
  bool broken() const { return state_ == State::kBroken; }
  bool too_deep() const { return too_deep_; }
  // More text must come before anything can be decided.
  bool waits() const { return waits_; }

 private:
  enum class State : uint8_t { kWant, kString, kEscape, kDigits, kBare, kBehind, kDone, kBroken };

  bool python() const { return spelling_.quote.empty(); }
  bool in_object() const { return !open_.empty() && open_.back() == '{'; }
  void Want(std::string_view& text, bool more, std::string& out);
  void Behind(std::string_view& text, std::string& out);
  void StringPart(std::string_view& text, bool more, std::string& out);
  void Escape(std::string_view& text, std::string& out);
  void Digits(std::string_view& text, std::string& out);
  void Bare(std::string_view& text, std::string& out);
  void BeginString(char quote, std::string& out);
  void EndString(std::string& out);
  void EndBare(std::string& out);
  void EndValue();
  void Open(char c, std::string& out);
  void Close(char c, std::string& out);
  void Separate(std::string& out);
  void PutInString(std::string_view text, std::string& out);

  const Spelling spelling_;
  const Limits limits_;
  State state_ = State::kWant;
  std::vector<char> open_;  // brackets
  bool waits_ = false;
  bool too_deep_ = false;
  bool key_ = false;    // a key of an object is wanted or read
  bool comma_ = false;  // a comma waits for the next value
  char quote_ = 0;
  int digits_left_ = 0;
  uint32_t code_ = 0;
  size_t bare_depth_ = 0;  // of brackets inside bare text
  std::string bare_;
  std::string member_;  // the outermost object's key
};

}  // namespace quire::dialect
