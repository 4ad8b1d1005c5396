// What the text of a request's choices must be: plain data, as it travels from router to worker.
// common/grammar compiles it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace quire {

// With the most resumed ids and sampling parameters at their limits, a Submit still fits one frame.
inline constexpr size_t kMaxConstraintBytes = 128u << 10;
inline constexpr size_t kMaxWhitespacePatternBytes = 256;

enum class ConstraintKind : uint8_t {
  kNone = 0,
  kJsonSchema = 1,  // source: the schema, with its keys in the order of the answer's
  kRegex = 2,       // source: an expression that matches the whole text
  kGrammar = 3,     // source: GBNF
  kJsonObject = 4,  // no source: any JSON object
  kChoice = 5,      // source: a JSON array of strings; the text is one of them
  kLark = 6,        // source: Lark, as llguidance reads it
  kStructuralTag = 7,
};

struct Constraint {
  ConstraintKind kind = ConstraintKind::kNone;
  std::string source;  // UTF-8, at most kMaxConstraintBytes
  // Of JSON kinds alone.
  std::string whitespace_pattern;  // an expression for white space; empty: the default
  bool compact = false;            // no white space
  bool closed = false;  // an object that says nothing of additionalProperties takes no others

  bool operator==(const Constraint&) const = default;
};

}  // namespace quire
