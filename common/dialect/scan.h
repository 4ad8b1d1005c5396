// Small readers that a parser keeps between deltas: where a JSON value ends, what a JSON string
// says, where a mark is.
//
// Plain values of one parser. Each takes a prefix of the text and may be called with any cutting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/dialect/dialect.h"

namespace quire::dialect {

constexpr bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Finds the end of a JSON value by its brackets and strings; what is between them is not judged.
class JsonScan {
 public:
  explicit JsonScan(size_t max_depth = 64) : max_depth_(max_depth) {}
  // Bytes of `text` that belong to the value. The first byte of a value is no blank. Stops once
  // before the bracket that nests too deep.
  size_t Take(std::string_view text);
  bool done() const { return done_; }
  bool too_deep() const { return too_deep_; }

 private:
  size_t max_depth_;
  bool too_deep_ = false;
  size_t depth_ = 0;
  bool begun_ = false;
  bool scalar_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
  bool done_ = false;
};

// Reads a JSON string behind its opening quote.
class JsonText {
 public:
  // Bytes of `text` that were read, with the closing quote; `out` grows by what they say.
  size_t Take(std::string_view text, std::string& out);
  bool done() const { return done_; }

 private:
  void Escape(char c, std::string& out);
  void Unit(std::string& out);

  bool escaped_ = false;
  bool done_ = false;
  int digits_left_ = 0;
  uint32_t unit_ = 0;
  uint32_t high_ = 0;  // a high surrogate that waits for its low one
};

void AppendUtf8(uint32_t code, std::string& out);

// `text` as the inside of a JSON string: quotes, backslashes and control characters escaped.
void AppendEscaped(std::string_view text, std::string& out);
std::string Quoted(std::string_view text);

// Which of `marks` is at the beginning of `text`.
struct Match {
  enum class Kind : uint8_t { kNone, kMaybe, kMark };
  Kind kind = Kind::kNone;
  size_t index = 0;
};
// `more`: text may follow, so that a beginning may become a mark.
Match MatchAt(std::string_view text, std::span<const std::string_view> marks, bool more);

}  // namespace quire::dialect
