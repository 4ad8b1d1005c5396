// Text of a choice: stop strings at every split, hold-back, usage, logprobs.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/utf8.h"
#include "router/stream/choice_stream.h"
#include "router/stream/stop_matcher.h"
#include "tests/router/support/fake_text.h"

namespace quire {
namespace {

// What a matcher shows and how it ends when `text` comes in pieces of these sizes.
struct Shown {
  std::string text;
  int match = -1;
  friend bool operator==(const Shown&, const Shown&) = default;
};
Shown FeedInPieces(const std::vector<std::string>& stops, std::string_view text,
                   const std::vector<size_t>& cuts) {
  const StopPatterns patterns(stops);
  StopMatcher matcher(patterns);
  Shown shown;
  std::string held;
  size_t at = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : text.size();
    const std::string_view piece = text.substr(at, end - at);
    at = end;
    const StopMatcher::Found found = matcher.Feed(piece);
    held.append(piece.substr(0, found.used));
    if (found.string >= 0) {
      shown.match = found.string;
      shown.text += held.substr(0, held.size() - stops[static_cast<size_t>(found.string)].size());
      return shown;
    }
    const size_t free = held.size() - matcher.HeldBytes();
    shown.text += held.substr(0, free);
    held.erase(0, free);
  }
  shown.text += held;
  return shown;
}

// The definition, slowly: the first byte at which some stop string is complete; the longest of
// those.
Shown ByDefinition(const std::vector<std::string>& stops, std::string_view text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      const std::string_view head = text.substr(0, end);
      if (!head.ends_with(stops[i])) continue;
      if (best < 0 || stops[i].size() > stops[static_cast<size_t>(best)].size()) {
        best = static_cast<int>(i);
      }
    }
    if (best >= 0) {
      return {std::string(text.substr(0, end - stops[static_cast<size_t>(best)].size())), best};
    }
  }
  return {std::string(text), -1};
}

TEST(StopMatcher, TheResultDoesNotDependOnTheSplit) {
  const std::vector<std::vector<std::string>> lists = {
      {"aab"}, {"abab", "ba"}, {"\n\n"}, {"aaaa", "aab", "b"}, {"zzz"}, {"abcabcabd"},
  };
  for (const auto& stops : lists) {
    for (const std::string text : {"aaabab", "abababab", "aaaaaa", "xy\n\nz", "abcabcabcabdz"}) {
      const Shown expected = ByDefinition(stops, text);
      // Every set of cuts of a short text.
      for (uint32_t mask = 0; mask < (1u << (text.size() - 1)); ++mask) {
        std::vector<size_t> cuts;
        for (size_t i = 1; i < text.size(); ++i) {
          if (mask & (1u << (i - 1))) cuts.push_back(i);
        }
        ASSERT_EQ(FeedInPieces(stops, text, cuts), expected) << text << " mask " << mask;
      }
    }
  }
}

TEST(StopMatcher, AgreesWithTheDefinitionOnRandomTexts) {
  std::mt19937_64 rng(5);
  const auto word = [&rng](size_t longest) {
    std::string text(1 + rng() % longest, 'a');
    for (char& c : text) c = static_cast<char>('a' + rng() % 2);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (uint64_t i = 0; i <= rng() % 4; ++i) stops.push_back(word(6));
    const std::string text = word(40);
    std::vector<size_t> cuts;
    for (size_t i = 1; i < text.size(); ++i) {
      if (rng() % 3 == 0) cuts.push_back(i);
    }
    const Shown shown = FeedInPieces(stops, text, cuts);
    const Shown expected = ByDefinition(stops, text);
    ASSERT_EQ(shown.text, expected.text) << "round " << round;
    ASSERT_EQ(shown.match < 0, expected.match < 0);
    if (shown.match >= 0) {
      // Equal strings given twice: either may be named.
      ASSERT_EQ(stops[static_cast<size_t>(shown.match)],
                stops[static_cast<size_t>(expected.match)]);
    }
  }
}

TEST(StopMatcher, HoldsBackNoMoreThanItMust) {
  const StopPatterns patterns({"abcd", "bcx"});
  StopMatcher matcher(patterns);
  matcher.Feed("zzabc");
  EXPECT_EQ(matcher.HeldBytes(), 3u);
  matcher.Feed("z");
  EXPECT_EQ(matcher.HeldBytes(), 0u);
  matcher.Feed("abcabc");
  EXPECT_EQ(matcher.HeldBytes(), 3u);
}

Delta Only(Deltas deltas) {
  EXPECT_EQ(deltas.size(), 1u);
  return std::move(deltas.front());
}

class ChoiceStreamTest : public ::testing::Test {
 protected:
  Output Tokens(std::string_view text) {
    Output output;
    output.first_index = next_;
    const std::vector<TokenId> ids = FakeIds(text);
    output.ids.assign(ids.begin(), ids.end());
    next_ += output.ids.size();
    return output;
  }
  ChoiceStream Stream() {
    return {std::make_shared<const ChoiceStreamOptions>(options_), 0, text_};
  }
  FakeText text_;
  ChoiceStreamOptions options_;
  uint64_t next_ = 0;
};

TEST_F(ChoiceStreamTest, PassesTokensAndTextOn) {
  ChoiceStream stream = Stream();
  const Delta delta = Only(stream.Append(Tokens("hello")));
  EXPECT_EQ(delta.text, "hello");
  EXPECT_EQ(delta.ids, FakeIds("hello"));
  EXPECT_EQ(delta.first_index, 0u);
  EXPECT_EQ(Only(stream.Append(Tokens("x"))).first_index, 5u);
  EXPECT_EQ(Only(stream.Finish()).text, "");
  EXPECT_EQ(stream.completion_tokens(), 6u);
}

TEST_F(ChoiceStreamTest, AMatchEndsIdsAndTextAndCountAtItsLastToken) {
  options_.stop = StopPatterns({"END"});
  for (const bool include : {false, true}) {
    options_.include_stop_str_in_output = include;
    next_ = 0;
    ChoiceStream stream = Stream();
    EXPECT_EQ(Only(stream.Append(Tokens("one E"))).text, "one ");
    const Delta delta = Only(stream.Append(Tokens("ND and more")));
    EXPECT_EQ(delta.text, include ? "END" : "");
    EXPECT_EQ(delta.ids, FakeIds("ND"));
    EXPECT_EQ(stream.stop_string(), "END");
    EXPECT_EQ(stream.completion_tokens(), 7u);
  }
}

TEST_F(ChoiceStreamTest, HeldBackTextComesWhenItIsNoMatch) {
  options_.stop = StopPatterns({"ENDE"});
  ChoiceStream stream = Stream();
  EXPECT_EQ(Only(stream.Append(Tokens("aEND"))).text, "a");
  EXPECT_EQ(Only(stream.Append(Tokens("!"))).text, "END!");
  EXPECT_EQ(Only(stream.Append(Tokens("EN"))).text, "");
  EXPECT_EQ(Only(stream.Finish()).text, "EN");
  EXPECT_FALSE(stream.stop_string().has_value());
}

TEST_F(ChoiceStreamTest, TextMayStayAwayAndStopStringsStillWork) {
  options_.want_text = false;
  options_.stop = StopPatterns({"bc"});
  ChoiceStream stream = Stream();
  const Delta delta = Only(stream.Append(Tokens("abcd")));
  EXPECT_EQ(delta.text, "");
  EXPECT_EQ(delta.ids, FakeIds("abc"));
  EXPECT_EQ(stream.stop_string(), "bc");
}

TEST_F(ChoiceStreamTest, TheTokenThatEndsAChoiceAddsNoText) {
  options_.stop_token_ids = {'!'};
  ChoiceStream stream = Stream();
  EXPECT_EQ(Only(stream.Append(Tokens("hi!"))).text, "hi");
  EXPECT_EQ(stream.completion_tokens(), 3u);

  options_.include_stop_str_in_output = true;
  next_ = 0;
  ChoiceStream shows = Stream();
  EXPECT_EQ(Only(shows.Append(Tokens("hi!"))).text, "hi!");
}

TEST_F(ChoiceStreamTest, BeforeMinTokensNothingStops) {
  options_.stop = StopPatterns({"b"});
  options_.stop_token_ids = {'c'};
  options_.min_tokens = 3;
  ChoiceStream stream = Stream();
  EXPECT_EQ(Only(stream.Append(Tokens("abc"))).text, "abc");
  EXPECT_EQ(Only(stream.Append(Tokens("ab"))).text, "a");
  EXPECT_EQ(stream.stop_string(), "b");
}

TEST_F(ChoiceStreamTest, ReplayedOutputsCountAndSetTheState) {
  options_.stop = StopPatterns({"abc"});
  ChoiceStream stream = Stream();
  stream.Replay(FakeIds("xab"));
  next_ = 3;
  const Delta delta = Only(stream.Append(Tokens("c")));
  EXPECT_EQ(delta.first_index, 3u);
  EXPECT_EQ(stream.stop_string(), "abc");
  EXPECT_EQ(stream.completion_tokens(), 4u);
}

TEST_F(ChoiceStreamTest, LogprobsHaveTextAndBytes) {
  ChoiceStream stream = Stream();
  Output output = Tokens("a");
  output.ids[0] = 0xC3;  // half a character
  output.logprobs = {-1.5f};
  output.top = {{{0xC3, 'b'}, {-1.5f, -std::numeric_limits<float>::infinity()}}};
  const Delta delta = Only(stream.Append(output));
  ASSERT_EQ(delta.logprobs.size(), 1u);
  EXPECT_EQ(delta.logprobs[0].token, "\xEF\xBF\xBD");
  EXPECT_EQ(delta.logprobs[0].bytes, "\xC3");
  EXPECT_EQ(delta.logprobs[0].logprob, -1.5f);
  ASSERT_EQ(delta.logprobs[0].top.size(), 2u);
  EXPECT_EQ(delta.logprobs[0].top[1].token, "b");
  EXPECT_EQ(delta.logprobs[0].top[1].logprob, -9999.0f) << "JSON knows no infinity";
}

}  // namespace
}  // namespace quire
