#include "worker/adapters/name_pattern.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {

// Builds the states from back to front of each piece: a fragment has a way in, and a state that is
// its way out, which later fragments are tied to.
class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {}

  absl::StatusOr<NamePattern> Parse() {
    if (text_.size() > kMaxPatternBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "has ", text_.size(), " bytes, patterns of at most ", kMaxPatternBytes, " are read"));
    }
    if (Take('^')) pattern_.from_start_ = true;
    if (text_.ends_with('$') && !text_.ends_with("\\$")) text_.remove_suffix(1);
    const Piece all = Choice(0);
    if (error_.empty() && at_ < text_.size()) Fail("an unmatched )");
    if (!error_.empty()) return absl::InvalidArgumentError(AbslView(error_));
    pattern_.start_ = all.in;
    pattern_.end_ = all.out;
    return std::move(pattern_);
  }

 private:
  using State = NamePattern::State;
  struct Piece {
    int in = -1;
    int out = -1;  // an empty state
  };

  void Fail(std::string_view what) {
    if (!error_.empty()) return;
    error_ =
        absl::StrCat("has ", AbslView(what), " at character ", at_ + 1, ", which is not read here");
  }
  bool Take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  int NewState() {
    if (pattern_.states_.size() >= kMaxPatternStates) {
      if (error_.empty()) {
        error_ = absl::StrCat("needs more than the ", kMaxPatternStates, " states that are kept");
      }
      return static_cast<int>(pattern_.states_.size()) - 1;
    }
    pattern_.states_.emplace_back();
    return static_cast<int>(pattern_.states_.size()) - 1;
  }
  State& At(int state) { return pattern_.states_[static_cast<size_t>(state)]; }
  Piece Empty() {
    const int state = NewState();
    return {state, state};
  }
  void Tie(int from, int to) { (At(from).next < 0 ? At(from).next : At(from).other) = to; }
  Piece Then(const Piece& first, const Piece& second) {
    Tie(first.out, second.in);
    return {first.in, second.out};
  }

  Piece Choice(int depth) {
    if (depth > kMaxPatternDepth) Fail("a deeper nesting than 32");
    Piece all = Sequence(depth);
    while (error_.empty() && Take('|')) {
      const Piece other = Sequence(depth);
      const int in = NewState();
      const int out = NewState();
      Tie(in, all.in);
      Tie(in, other.in);
      Tie(all.out, out);
      Tie(other.out, out);
      all = {in, out};
    }
    return all;
  }

  Piece Sequence(int depth) {
    Piece all = Empty();
    while (error_.empty() && at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
      const size_t begin = at_;
      Piece piece = Atom(depth);
      if (!error_.empty()) return all;
      all = Then(all, Repeated(piece, begin, depth));
    }
    return all;
  }

  // An atom is parsed again for each of its copies: its text is at `begin`.
  Piece Repeated(Piece piece, size_t begin, int depth) {
    int least = 1;
    int most = 1;
    if (!Quantifier(least, most)) return piece;
    const size_t end = at_;
    const auto copy = [&] {
      at_ = begin;
      return Atom(depth);
    };
    Piece all = Empty();
    bool first = true;
    const auto next = [&] { return std::exchange(first, false) ? piece : copy(); };
    for (int i = 0; i < least && error_.empty(); ++i) all = Then(all, next());
    if (most < 0) {
      const Piece again = next();
      const int in = NewState();
      const int out = NewState();
      Tie(in, again.in);
      Tie(in, out);
      Tie(again.out, in);
      all = Then(all, {in, out});
    }
    for (int i = least; i < most && error_.empty(); ++i) {
      const Piece one = next();
      const int in = NewState();
      const int out = NewState();
      Tie(in, one.in);
      Tie(in, out);
      Tie(one.out, out);
      all = Then(all, {in, out});
    }
    at_ = end;
    return all;
  }

  // most < 0: any number.
  bool Quantifier(int& least, int& most) {
    if (Take('*')) {
      least = 0, most = -1;
    } else if (Take('+')) {
      least = 1, most = -1;
    } else if (Take('?')) {
      least = 0, most = 1;
    } else if (at_ < text_.size() && text_[at_] == '{') {
      if (!Counts(least, most)) return false;
    } else {
      return false;
    }
    Take('?');
    if (at_ < text_.size() && std::string_view("*+{").find(text_[at_]) != std::string_view::npos) {
      Fail("a repetition of a repetition");
    }
    return true;
  }

  bool Counts(int& least, int& most) {
    ++at_;
    least = Number();
    most = least;
    if (Take(',')) most = at_ < text_.size() && text_[at_] == '}' ? -1 : Number();
    if (!Take('}') || least < 0 || (most >= 0 && most < least)) Fail("counts that are none");
    return error_.empty();
  }
  int Number() {
    int value = 0;
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value < 10'000) {
      value = 10 * value + (text_[at_++] - '0');
    }
    if (at_ == begin) Fail("counts that are none");
    return value;
  }

  Piece Atom(int depth) {
    if (Take('(')) return Group(depth);
    Piece piece{NewState(), NewState()};
    State& state = At(piece.in);
    state.takes = true;
    state.next = piece.out;
    const char c = text_[at_++];
    if (c == '.') {
      state.set.set();
      state.set.reset('\n');
    } else if (c == '[') {
      Set(state.set);
    } else if (c == '\\') {
      Escape(state.set);
    } else if (std::string_view("*+?{^$").find(c) != std::string_view::npos) {
      --at_;
      Fail(absl::StrCat("a ", std::string(1, c)));
    } else {
      state.set.set(static_cast<unsigned char>(c));
    }
    return piece;
  }

  Piece Group(int depth) {
    if (Take('?') && !Take(':')) {
      Fail("a group of a special kind");
      return {};
    }
    const Piece inner = Choice(depth + 1);
    if (!Take(')')) Fail("a group without an end");
    return inner;
  }

  void Escape(std::bitset<256>& set) {
    if (at_ >= text_.size()) return Fail("a \\ before nothing");
    const char c = text_[at_++];
    const auto add = [&set](std::string_view characters) {
      for (const char one : characters) set.set(static_cast<unsigned char>(one));
    };
    if (c == 'd' || c == 'w') add("0123456789");
    if (c == 'w') add("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");
    if (c == 's') add(" \t\n\r\f\v");
    if (c == 'd' || c == 'w' || c == 's') return;
    const bool word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (word || static_cast<unsigned char>(c) > 127) return Fail("a class of a special kind");
    set.set(static_cast<unsigned char>(c));
  }

  void Set(std::bitset<256>& set) {
    const bool others = Take('^');
    bool first = true;
    while (error_.empty() && (first || at_ >= text_.size() || text_[at_] != ']')) {
      first = false;
      if (at_ >= text_.size()) return Fail("a set without an end");
      const char from = text_[at_++];
      if (from == '\\') {
        Escape(set);
        continue;
      }
      char to = from;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        to = text_[at_ + 1];
        at_ += 2;
      }
      if (to == '\\' || static_cast<unsigned char>(to) < static_cast<unsigned char>(from)) {
        return Fail("a range that is none");
      }
      for (int c = static_cast<unsigned char>(from); c <= static_cast<unsigned char>(to); ++c) {
        set.set(static_cast<size_t>(c));
      }
    }
    ++at_;
    if (others) set.flip();
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string error_;
  NamePattern pattern_;
};

absl::StatusOr<NamePattern> NamePattern::Parse(std::string_view pattern) {
  return PatternParser(pattern).Parse();
}

void NamePattern::Enter(int state, Entered& entered, std::vector<int>& list) const {
  entered.waiting.push_back(state);
  while (!entered.waiting.empty()) {
    const int one = entered.waiting.back();
    entered.waiting.pop_back();
    if (one < 0 || entered.at[static_cast<size_t>(one)] == entered.place) continue;
    entered.at[static_cast<size_t>(one)] = entered.place;
    list.push_back(one);
    if (states_[static_cast<size_t>(one)].takes) continue;
    entered.waiting.push_back(states_[static_cast<size_t>(one)].next);
    entered.waiting.push_back(states_[static_cast<size_t>(one)].other);
  }
}

bool NamePattern::Run(std::string_view name, PatternSteps& steps) const {
  // Clearing the marks costs a part of entering as many.
  constexpr int64_t kMarksOfStep = 16;
  if (!steps.Take(1 + static_cast<int64_t>(states_.size()) / kMarksOfStep)) return false;
  Entered entered;
  entered.at.resize(states_.size());
  std::vector<int> now;
  std::vector<int> then;
  Enter(start_, entered, now);
  for (const char c : name) {
    if (!steps.Take(static_cast<int64_t>(now.size()))) return false;
    ++entered.place;
    then.clear();
    for (const int state : now) {
      const State& one = states_[static_cast<size_t>(state)];
      if (one.takes && one.set[static_cast<unsigned char>(c)]) Enter(one.next, entered, then);
    }
    if (then.empty()) return false;
    std::swap(now, then);
  }
  return std::find(now.begin(), now.end(), end_) != now.end();
}

bool NamePattern::Matches(std::string_view name, PatternSteps& steps) const {
  return Run(name, steps);
}

bool NamePattern::MatchesEnd(std::string_view name, PatternSteps& steps) const {
  if (Run(name, steps)) return true;
  for (size_t dot = from_start_ ? name.npos : name.find('.'); dot != name.npos;
       dot = name.find('.', dot + 1)) {
    if (Run(name.substr(dot + 1), steps)) return true;
  }
  return false;
}

}  // namespace quire
