#include "router/stream/stop_matcher.h"

#include <algorithm>

#include "common/check.h"

namespace quire {

StopPatterns::StopPatterns(std::vector<std::string> strings) {
  patterns_.reserve(strings.size());
  for (std::string& text : strings) {
    QUIRE_CHECK_MSG(!text.empty(), "a stop string has at least one byte");
    Pattern& pattern = patterns_.emplace_back();
    pattern.text = std::move(text);
    pattern.fallback.assign(pattern.text.size(), 0);
    uint32_t length = 0;
    for (size_t i = 1; i < pattern.text.size(); ++i) {
      while (length > 0 && pattern.text[i] != pattern.text[length]) {
        length = pattern.fallback[length - 1];
      }
      if (pattern.text[i] == pattern.text[length]) ++length;
      pattern.fallback[i] = length;
    }
  }
}

StopMatcher::Found StopMatcher::Feed(std::string_view piece) {
  const std::vector<StopPatterns::Pattern>& patterns = patterns_->patterns_;
  for (size_t at = 0; at < piece.size(); ++at) {
    int found = -1;
    for (size_t i = 0; i < patterns.size(); ++i) {
      const StopPatterns::Pattern& pattern = patterns[i];
      uint32_t& matched = matched_[i];
      QUIRE_CHECK_MSG(matched < pattern.text.size(), "nothing is read after a match");
      while (matched > 0 && piece[at] != pattern.text[matched]) {
        matched = pattern.fallback[matched - 1];
      }
      if (piece[at] == pattern.text[matched]) ++matched;
      if (matched < pattern.text.size()) continue;
      const bool longest =
          found < 0 || pattern.text.size() > patterns[static_cast<size_t>(found)].text.size();
      if (longest) found = static_cast<int>(i);
    }
    if (found >= 0) return {found, at + 1};
  }
  return {-1, piece.size()};
}

size_t StopMatcher::HeldBytes() const {
  size_t held = 0;
  for (const uint32_t matched : matched_) held = std::max<size_t>(held, matched);
  return held;
}

}  // namespace quire
