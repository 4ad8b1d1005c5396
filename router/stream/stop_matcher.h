// Finds stop strings in a text that comes in pieces, and says how much of it may be shown.
//
// Owner: one choice's stream, on the router's executor. One automaton per stop string (Knuth,
// Morris and Pratt, "Fast pattern matching in strings"), so a byte costs as many comparisons as
// there are strings.
//  1. The result depends on the text alone, never on where it was cut: the match that is complete
//     first wins, the longest of several that are complete at the same byte.
//  2. What is held back is the longest end of the text with which a stop string begins, and nothing
//     else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class StopMatcher {
 public:
  // Strings are not empty.
  explicit StopMatcher(std::vector<std::string> strings);

  // Reads a piece up to the end of the first match.
  struct Found {
    int string = -1;  // in the order given; -1: none
    size_t used = 0;  // bytes of the piece that were read
  };
  Found Feed(std::string_view piece);

  // The length of the text's end that may still become a match.
  size_t HeldBytes() const;
  const std::string& string(int index) const { return patterns_[index].text; }
  bool empty() const { return patterns_.empty(); }

 private:
  struct Pattern {
    std::string text;
    std::vector<uint32_t> fallback;  // the longest proper prefix that is also an end of text[0, i]
    uint32_t matched = 0;
  };
  std::vector<Pattern> patterns_;
};

}  // namespace quire
