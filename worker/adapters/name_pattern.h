// Patterns of module names in an adapter's configuration: the part of Python's regular expressions
// that such files use, matched in time that grows with pattern times name.
//
// A value; any thread. A pattern comes from a file and is hostile: its length, its nesting and its
// states are bounded, and matching never backtracks.
//
// Read are letters and other plain characters, `.`, `\` before a punctuation mark, `\d`, `\w`,
// `\s`, sets such as [a-z_] and [^0-9], groups, `|`, and `* + ? {n} {n,} {n,m}`, each also with a
// `?` behind it, which changes nothing where a whole name has to match.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace quire {

inline constexpr size_t kMaxPatternBytes = 4096;
inline constexpr size_t kMaxPatternStates = 2048;
inline constexpr int kMaxPatternDepth = 32;
// States that the matching of one adapter's names may enter, all names and patterns together.
inline constexpr int64_t kMaxPatternSteps = int64_t{1} << 26;

// What is left of them. At 0 nothing matches any more: the caller checks it.
struct PatternSteps {
  int64_t left = kMaxPatternSteps;

  bool Take(int64_t steps) {
    left = steps < left ? left - steps : 0;
    return left > 0;
  }
};

class NamePattern {
 public:
  // INVALID_ARGUMENT "reads … at character N", without the pattern's name, for what is not read,
  // and for what exceeds a limit.
  static absl::StatusOr<NamePattern> Parse(std::string_view pattern);

  // Whether the whole of `name` matches.
  bool Matches(std::string_view name, PatternSteps& steps) const;
  // Whether the end of `name` matches, and begins the name or follows a dot. A pattern that
  // began with ^ matches whole names alone.
  bool MatchesEnd(std::string_view name, PatternSteps& steps) const;

  size_t states() const { return states_.size(); }

 private:
  friend class PatternParser;
  // One step of matching: a character of `set` leads to `next`; without a set both `next` and
  // `other` are entered at once.
  struct State {
    std::bitset<256> set;
    bool takes = false;
    int next = -1;
    int other = -1;
  };

  // The states that are entered at one place of a name, each once.
  struct Entered {
    std::vector<int> at;  // by state: the place where it was entered last, from 1
    int place = 1;
    std::vector<int> waiting;
  };
  bool Run(std::string_view name, PatternSteps& steps) const;
  void Enter(int state, Entered& entered, std::vector<int>& list) const;

  std::vector<State> states_;
  int start_ = -1;
  int end_ = -1;
  bool from_start_ = false;
};

}  // namespace quire
