// Finds stop strings in a text that comes in pieces, and computes how much of it may be shown.
//
// Stop strings are compiled once for all choices of a request (StopPatterns, shared); a matcher is
// the state of one choice's stream, on the router's executor. One automaton per stop string (Knuth,
// Morris and Pratt, "Fast pattern matching in strings"), so a byte costs as many comparisons as
// there are strings.
//  1. The result depends on the text alone, never on how it was split: the match that is complete
//     first wins, the longest of several that are complete at the same byte.
//  2. What is held back is the longest end of the text that is a prefix of a stop string, and
//     nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Immutable: any thread.
class StopPatterns {
 public:
  // Strings are not empty.
  explicit StopPatterns(std::vector<std::string> strings);

  bool empty() const { return patterns_.empty(); }
  const std::string& string(int index) const { return patterns_[index].text; }

 private:
  friend class StopMatcher;
  struct Pattern {
    std::string text;
    std::vector<uint32_t> fallback;  // the longest proper prefix that is also an end of text[0, i]
  };
  std::vector<Pattern> patterns_;
};

class StopMatcher {
 public:
  // The patterns outlive the matcher.
  explicit StopMatcher(const StopPatterns& patterns)
      : patterns_(&patterns), matched_(patterns.patterns_.size(), 0) {}

  // Reads a piece up to the end of the first match.
  struct Found {
    int string = -1;  // in the order given; -1: none
    size_t used = 0;  // bytes of the piece that were read
  };
  Found Feed(std::string_view piece);

  // The length of the text's end that may still become a match.
  size_t HeldBytes() const;

 private:
  const StopPatterns* patterns_;
  std::vector<uint32_t> matched_;  // by pattern: bytes of it that the text ends with
};

}  // namespace quire
