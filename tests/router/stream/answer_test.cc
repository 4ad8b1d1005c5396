// Answers that come apart into thoughts, text and calls: all dialects with their special tokens, at
// every cut and through a resume.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "router/stream/choice_stream.h"
#include "tests/common/dialect/cases.h"
#include "tests/common/dialect/support.h"
#include "tests/router/support/fake_text.h"

namespace quire {
namespace {

// All that deltas say, joined.
struct Said {
  std::string text, reasoning;
  std::vector<ToolCallDelta> calls;
  std::vector<TokenId> ids;

  void Add(const Deltas& deltas) {
    for (const Delta& delta : deltas) {
      EXPECT_EQ(delta.first_index, ids.size());
      ids.insert(ids.end(), delta.ids.begin(), delta.ids.end());
      text += delta.text;
      reasoning += delta.reasoning;
      for (const ToolCallDelta& piece : delta.tool_calls) {
        if (!piece.name.empty()) {
          EXPECT_EQ(piece.index, calls.size()) << "calls begin in order, each once";
          EXPECT_FALSE(piece.id.empty());
          EXPECT_EQ(piece.arguments, "");
          calls.push_back(piece);
          continue;
        }
        ASSERT_LT(piece.index, calls.size());
        EXPECT_EQ(piece.id, "");
        calls[piece.index].arguments += piece.arguments;
      }
    }
  }
  friend bool operator==(const Said& a, const Said& b) {
    const auto same = [](const ToolCallDelta& x, const ToolCallDelta& y) {
      return x.id == y.id && x.name == y.name && x.arguments == y.arguments;
    };
    return a.text == b.text && a.reasoning == b.reasoning && a.ids == b.ids &&
           std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), b.calls.end(), same);
  }
};

class AnswerTest : public ::testing::Test {
 protected:
  // The answer is in this dialect; its special marks are tokens.
  void Speak(std::string_view name, bool opened = false) {
    text_ = FakeText();
    const dialect::Dialect* spoken = dialect::FindDialect(name);
    text_.spoken = {spoken, dialect::FindThoughts(spoken->thoughts)};
    for (const std::string_view mark :
         dialect::SpecialMarks(text_.spoken.dialect, text_.spoken.thoughts)) {
      text_.specials.emplace_back(mark);
    }
    text_.specials.emplace_back("<|other|>");
    options_ = ChoiceStreamOptions();
    options_.format = std::make_shared<const AnswerFormat>(MakeAnswerFormat(text_, text_.spoken));
    AnswerReading& reading = options_.reading.emplace();
    reading.parser.dialect = options_.format->dialect;
    reading.parser.thoughts = options_.format->thoughts;
    reading.parser.tokens = options_.format->tokens;
    reading.parser.thought_opened = opened;
    reading.parser.types = std::make_shared<const dialect::ToolTypes>(
        dialect::ToolTypes::FromJson(dialect::kTools).value());
  }

  std::vector<TokenId> Ids(std::string_view answer) const {
    std::vector<TokenId> ids;
    while (!answer.empty()) {
      size_t size = 1;
      TokenId id = static_cast<unsigned char>(answer.front());
      for (const std::string& special : text_.specials) {
        if (special.size() <= size || !answer.starts_with(special)) continue;
        size = special.size();
        id = *text_.TokenOf(special);
      }
      ids.push_back(id);
      answer.remove_prefix(size);
    }
    return ids;
  }

  ChoiceStream Stream() const {
    return {std::make_shared<const ChoiceStreamOptions>(options_), 0, text_};
  }
  static Output OutputOf(const std::vector<TokenId>& ids, size_t from, size_t to) {
    Output output;
    output.first_index = from;
    output.ids.assign(ids.begin() + static_cast<ptrdiff_t>(from),
                      ids.begin() + static_cast<ptrdiff_t>(to));
    return output;
  }
  // In two outputs.
  Said Read(const std::vector<TokenId>& ids, size_t cut) const {
    ChoiceStream stream = Stream();
    Said said;
    said.Add(stream.Append(OutputOf(ids, 0, cut)));
    if (!stream.complete()) said.Add(stream.Append(OutputOf(ids, cut, ids.size())));
    if (!stream.complete()) said.Add(stream.Finish());
    return said;
  }
  Said Read(std::string_view answer) const {
    const std::vector<TokenId> ids = Ids(answer);
    return Read(ids, ids.size());
  }

  FakeText text_;
  ChoiceStreamOptions options_;
};

TEST_F(AnswerTest, EveryDialectSaysTheSameAtEveryCut) {
  std::set<std::string_view> seen;
  for (const dialect::Case& one : dialect::kCases) {
    SCOPED_TRACE(one.text);
    seen.insert(one.dialect);
    Speak(one.dialect, one.opened);
    const std::vector<TokenId> ids = Ids(one.text);
    const Said whole = Read(ids, ids.size());
    std::vector<dialect::Piece> pieces;
    for (const TokenId id : ids) {
      pieces.push_back({std::string(text_.TokenBytes(id)), text_.IsSpecial(id)});
    }
    const dialect::Answer parsed = dialect::ParsePieces(options_.reading->parser, pieces);
    EXPECT_EQ(whole.text, parsed.content);
    EXPECT_EQ(whole.reasoning, parsed.reasoning);
    ASSERT_EQ(whole.calls.size(), parsed.calls.size());
    for (size_t i = 0; i < parsed.calls.size(); ++i) {
      EXPECT_EQ(whole.calls[i].name, parsed.calls[i].name);
      EXPECT_EQ(whole.calls[i].arguments, parsed.calls[i].arguments);
    }
    for (size_t cut = 0; cut < ids.size(); ++cut) ASSERT_EQ(Read(ids, cut), whole) << cut;
    ChoiceStream slow = Stream();
    Said by_token;
    for (size_t i = 0; i < ids.size(); ++i) by_token.Add(slow.Append(OutputOf(ids, i, i + 1)));
    by_token.Add(slow.Finish());
    EXPECT_EQ(by_token, whole);
  }
  EXPECT_EQ(seen.size(), dialect::Dialects().size());
}

// What a client has when its router dies, and what another one adds, are the whole answer.
TEST_F(AnswerTest, AResumedAnswerGoesOnWhereItWasCut) {
  for (const dialect::Case& one : dialect::kCases) {
    SCOPED_TRACE(one.text);
    Speak(one.dialect, one.opened);
    const std::vector<TokenId> ids = Ids(one.text);
    const Said whole = Read(ids, ids.size());
    for (size_t cut = 0; cut <= ids.size(); ++cut) {
      ChoiceStream first = Stream();
      Said said;
      said.Add(first.Append(OutputOf(ids, 0, cut)));
      ChoiceStream second = Stream();
      second.Replay(std::span(ids).first(cut));
      EXPECT_EQ(second.text_bytes(), 0u);
      if (cut < ids.size()) said.Add(second.Append(OutputOf(ids, cut, ids.size())));
      said.Add(second.Finish());
      ASSERT_EQ(said, whole) << cut;
    }
  }
}

TEST_F(AnswerTest, TextThatLooksLikeASpecialTokenIsText) {
  Speak("mistral");
  std::vector<TokenId> ids;
  for (const char c : std::string_view("[TOOL_CALLS]f[ARGS]{}")) ids.push_back(c);
  const Said said = Read(ids, ids.size());
  EXPECT_EQ(said.text, "[TOOL_CALLS]f[ARGS]{}");
  EXPECT_TRUE(said.calls.empty());
}

TEST_F(AnswerTest, SpecialTokensAreTextOnlyWhereTheyAreNoMarksAndAskedFor) {
  constexpr std::string_view kAnswer = "a<|other|>b[TOOL_CALLS]f[ARGS]{}</s>";
  Speak("mistral");
  EXPECT_EQ(Read(kAnswer).text, "ab");
  options_.skip_special_tokens = false;
  const Said shown = Read(kAnswer);
  EXPECT_EQ(shown.text, "a<|other|>b");
  ASSERT_EQ(shown.calls.size(), 1u);
  EXPECT_EQ(shown.calls[0].arguments, "{}");
}

TEST_F(AnswerTest, WithoutToolsACallIsTextAndThoughtsAreThoughts) {
  Speak("hermes");
  options_.reading->parser.calls = false;
  const Said said = Read("<think>hm</think>a<tool_call>{\"name\": \"f\"}</tool_call>");
  EXPECT_EQ(said.reasoning, "hm");
  EXPECT_EQ(said.text, "a<tool_call>{\"name\": \"f\"}</tool_call>");
  EXPECT_TRUE(said.calls.empty());
  Speak("openai");
  options_.reading->parser.calls = false;
  const Said harmony = Read(
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f<|message|>{}<|call|>");
  EXPECT_EQ(harmony.reasoning, "hm");
  EXPECT_EQ(harmony.text, "{}");
  EXPECT_TRUE(harmony.calls.empty());
}

TEST_F(AnswerTest, AStopStringEndsTextThoughtsAndCalls) {
  const struct {
    std::string_view stop, answer, text, reasoning, arguments;
    bool calls_tools;
  } cases[] = {
      {"END", "[TOOL_CALLS]f[ARGS]{\"a\": 1}xENDy", "x", "", "{\"a\": 1}", true},
      {"END", "[TOOL_CALLS]f[ARGS]{\"a\": ENDy", "", "", "{\"a\": ", false},
      {"END", "[THINK]hm ENDy[/THINK]z", "", "hm ", "", false},
      // Held back over a mark that is no part of the stop string.
      {"aab", "xaa[TOOL_CALLS]f[ARGS]{}", "xaa", "", "{}", true},
      {"a]", "xa[THINK]y[/THINK]", "xa", "y", "", false},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.answer);
    Speak("mistral");
    options_.stop = StopPatterns({std::string(one.stop)});
    const std::vector<TokenId> ids = Ids(one.answer);
    for (size_t cut = 0; cut <= ids.size(); ++cut) {
      ChoiceStream stream = Stream();
      Said said;
      said.Add(stream.Append(OutputOf(ids, 0, cut)));
      if (!stream.complete() && cut < ids.size()) {
        said.Add(stream.Append(OutputOf(ids, cut, ids.size())));
      }
      if (!stream.complete()) said.Add(stream.Finish());
      EXPECT_EQ(said.text, one.text);
      EXPECT_EQ(said.reasoning, one.reasoning);
      EXPECT_EQ(said.calls.empty() ? "" : said.calls[0].arguments, one.arguments);
      EXPECT_EQ(stream.calls_tools(), one.calls_tools);
    }
  }
}

TEST_F(AnswerTest, AStopStringInAMarkThatIsShownEndsBeforeIt) {
  Speak("mistral");
  options_.skip_special_tokens = false;
  for (const bool include : {false, true}) {
    options_.include_stop_str_in_output = include;
    options_.stop = StopPatterns({"CALLS"});
    EXPECT_EQ(Read("a[TOOL_CALLS]f[ARGS]{}").text, "a");
    options_.stop = StopPatterns({"b<|other|>"});
    EXPECT_EQ(Read("ab<|other|>c").text, include ? "ab<|other|>" : "a");
  }
}

// The token that ends a choice adds no text, but it may end a call.
TEST_F(AnswerTest, ATokenThatEndsTheChoiceEndsItsCall) {
  Speak("openai");
  options_.stop_token_ids = {*text_.TokenOf("<|call|>")};
  const Said said = Read("<|channel|>commentary to=functions.f<|message|><|call|>");
  ASSERT_EQ(said.calls.size(), 1u);
  EXPECT_EQ(said.calls[0].arguments, "{}");
}

TEST_F(AnswerTest, OneCallMayBeAll) {
  Speak("hermes");
  options_.reading->one_call = true;
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  const std::vector<TokenId> ids = Ids("a" + call + call + "b");
  ChoiceStream stream = Stream();
  Said said;
  said.Add(stream.Append(OutputOf(ids, 0, ids.size())));
  EXPECT_TRUE(stream.complete());
  EXPECT_FALSE(stream.stop_string().has_value());
  EXPECT_TRUE(stream.calls_tools());
  EXPECT_EQ(said.calls.size(), 1u);
  EXPECT_EQ(said.text, "a");
  EXPECT_LE(stream.completion_tokens(), 1 + call.size());
}

TEST_F(AnswerTest, TokensOfThoughtsAreCounted) {
  Speak("mistral");
  ChoiceStream stream = Stream();
  const std::vector<TokenId> ids = Ids("[THINK]four[/THINK]text");
  stream.Append(OutputOf(ids, 0, ids.size()));
  EXPECT_EQ(stream.reasoning_tokens(), 5u);  // the opening mark is one of them
  EXPECT_EQ(stream.completion_tokens(), 10u);
}

TEST_F(AnswerTest, ThePartsOfADeltaComeInTheOrderInWhichTheyWereWritten) {
  Speak("mistral");
  ChoiceStream stream = Stream();
  const std::vector<TokenId> ids = Ids("a[TOOL_CALLS]f[ARGS]{}b[THINK]t[/THINK]c");
  const Deltas deltas = stream.Append(OutputOf(ids, 0, ids.size()));
  ASSERT_EQ(deltas.size(), 3u);
  EXPECT_EQ(deltas[0].text, "a");
  EXPECT_EQ(deltas[0].tool_calls.size(), 2u);  // its beginning and its arguments
  EXPECT_EQ(deltas[1].text, "b");
  EXPECT_EQ(deltas[2].reasoning, "t");
  EXPECT_EQ(deltas[2].text, "c");
  EXPECT_EQ(deltas[2].first_index + deltas[2].ids.size(), ids.size());
}

TEST_F(AnswerTest, IdsOfCallsAreWhatTheTemplatesRead) {
  const std::string calls =
      "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"
      "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  Speak("hermes");
  const Said said = Read(calls);
  ASSERT_EQ(said.calls.size(), 2u);
  EXPECT_EQ(said.calls[0].id.size(), 5u + 24u);
  EXPECT_TRUE(said.calls[0].id.starts_with("call_"));
  EXPECT_NE(said.calls[0].id, said.calls[1].id);
  options_.reading->id_key = RootHash("another", "", "", "");
  EXPECT_NE(Read(calls).calls[0].id, said.calls[0].id);

  Speak("mistral");
  EXPECT_EQ(Read("[TOOL_CALLS]f[ARGS]{}").calls[0].id.size(), 9u);
  EXPECT_EQ(Read("[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{}").calls[0].id, "abcDEF123");
  EXPECT_NE(Read("[TOOL_CALLS]f[CALL_ID]a b[ARGS]{}").calls[0].id, "a b");

  Speak("kimi_k2");
  const auto kimi = [](const std::string& name) {
    return "<|tool_call_begin|>" + name + "<|tool_call_argument_begin|>{}<|tool_call_end|>";
  };
  const Said written = Read("<|tool_calls_section_begin|>" + kimi("functions.f:7") + kimi("g"));
  ASSERT_EQ(written.calls.size(), 2u);
  EXPECT_EQ(written.calls[0].id, "functions.f:7");
  EXPECT_EQ(written.calls[1].id, "functions.g:1");
  const Said twice = Read(kimi("functions.f:0") + kimi("functions.f:0"));
  EXPECT_NE(twice.calls[0].id, twice.calls[1].id);
}

TEST_F(AnswerTest, CallsPastTheirLimitAreText) {
  Speak("hermes");
  options_.reading->parser.limits.max_calls = 1;
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  ChoiceStream stream = Stream();
  Said said;
  const std::vector<TokenId> ids = Ids(call);
  said.Add(stream.Append(OutputOf(ids, 0, ids.size())));
  EXPECT_EQ(stream.limit(), "");
  std::vector<TokenId> again = ids;
  again.insert(again.end(), ids.begin(), ids.end());
  said.Add(stream.Append(OutputOf(again, ids.size(), again.size())));
  said.Add(stream.Finish());
  EXPECT_EQ(stream.limit(), "max_calls");
  EXPECT_EQ(said.calls.size(), 1u);
  EXPECT_NE(said.text.find("\"name\""), std::string::npos);
}

}  // namespace
}  // namespace quire
