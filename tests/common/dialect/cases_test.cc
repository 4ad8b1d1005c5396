// What breaks in the field, dialect by dialect, each case at every cutting.
#include <gtest/gtest.h>

#include "common/dialect/parser.h"
#include "common/dialect/scan.h"
#include "tests/common/dialect/cases.h"
#include "tests/common/dialect/support.h"

namespace quire::dialect {
namespace {

ParserOptions OptionsOfCase(const Case& one) {
  ParserOptions options = OptionsOf(one.dialect);
  options.thought_opened = one.opened;
  options.types = std::make_shared<const ToolTypes>(*ToolTypes::FromJson(kTools, true));
  return options;
}

TEST(DialectCases, GiveWhatTheySayAtEveryCutting) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(std::string(one.dialect) + ": " + std::string(one.text));
    const Answer answer = ParseWhole(OptionsOfCase(one), one.text);
    EXPECT_EQ(answer.content, one.content);
    EXPECT_EQ(answer.reasoning, one.reasoning);
    std::vector<std::pair<std::string, std::string>> calls;
    for (const Answer::Call& call : answer.calls) calls.emplace_back(call.name, call.arguments);
    EXPECT_EQ(calls, one.calls);
    EXPECT_EQ(DiffersAt(OptionsOfCase(one), one.text), "");
  }
}

TEST(DialectCases, CoverEveryDialect) {
  for (const Dialect* dialect : Dialects()) {
    int found = 0;
    for (const Case& one : kCases) found += one.dialect == dialect->name;
    EXPECT_GE(found, 3) << dialect->name;
    const Answer answer = ParseWhole(OptionsOf(dialect->name), dialect->example);
    ASSERT_GE(answer.calls.size(), 1u) << dialect->name;
    EXPECT_EQ(answer.calls[0].name, "f") << dialect->name;
    EXPECT_EQ(answer.content, "") << dialect->name;
  }
}

// A case cut off anywhere is still no error, and its marks do not leak.
TEST(DialectCases, CutOffAnywhereLeakNoMarks) {
  for (const Case& one : kCases) {
    const ParserOptions options = OptionsOfCase(one);
    std::vector<std::string_view> marks;
    for (const Trigger& trigger : options.dialect->triggers) {
      if (!trigger.soft) marks.push_back(trigger.mark.text);
    }
    for (const Mark& mark : options.dialect->openers) marks.push_back(mark.text);
    for (size_t size = 0; size <= one.text.size(); ++size) {
      const Answer answer = ParseWhole(options, one.text.substr(0, size));
      for (const std::string_view mark : marks) {
        EXPECT_EQ(answer.content.find(mark), std::string::npos)
            << one.dialect << ": " << one.text.substr(0, size);
      }
    }
  }
}

TEST(DialectCases, NoMarkBeginsAnotherOfItsDialect) {
  for (const Dialect* dialect : Dialects()) {
    const Thoughts* thoughts = FindThoughts(dialect->thoughts);
    ASSERT_NE(thoughts, nullptr) << dialect->thoughts;
    std::vector<std::string_view> marks;
    for (const Trigger& trigger : dialect->triggers) {
      if (!trigger.soft) marks.push_back(trigger.mark.text);
    }
    for (const auto& list : {dialect->openers, dialect->closers, dialect->dropped, thoughts->opens,
                             thoughts->closes}) {
      for (const Mark& mark : list) marks.push_back(mark.text);
    }
    for (size_t i = 0; i < marks.size(); ++i) {
      for (size_t j = 0; j < marks.size(); ++j) {
        EXPECT_FALSE(i != j && marks[i].starts_with(marks[j])) << marks[i] << " and " << marks[j];
      }
    }
  }
}

TEST(DialectTokens, SpecialTokensDecideNotTextThatLooksLikeThem) {
  ParserOptions options = OptionsOf("mistral");
  options.tokens = true;
  const Answer text = ParsePieces(options, {{"Write [TOOL_CALLS]f[ARGS]{}"}, {"</s>", true}});
  EXPECT_EQ(text.content, "Write [TOOL_CALLS]f[ARGS]{}");
  EXPECT_TRUE(text.calls.empty());
  const Answer call = ParsePieces(
      options, {{"[TOOL_CALLS]", true}, {"f"}, {"[ARGS]", true}, {"{\"a\": \"[ARGS]\"}"}});
  ASSERT_EQ(call.calls.size(), 1u);
  EXPECT_EQ(call.calls[0].arguments, "{\"a\": \"[ARGS]\"}");
}

TEST(DialectTokens, EachFormTakesItsMarksAsTokens) {
  ParserOptions options = OptionsOf("gemma4");
  options.tokens = true;
  const Answer gemma = ParsePieces(options, {{"<|channel>", true},
                                             {"thought\nhm"},
                                             {"<channel|>", true},
                                             {"<|tool_call>", true},
                                             {"call:f{a:"},
                                             {"<|\"|>", true},
                                             {"x<|\"|>y"},
                                             {"<|\"|>", true},
                                             {"}"},
                                             {"<tool_call|>", true}});
  EXPECT_EQ(gemma.reasoning, "hm");
  EXPECT_EQ(gemma.content, "");
  ASSERT_EQ(gemma.calls.size(), 1u);
  EXPECT_EQ(gemma.calls[0].arguments, "{\"a\": \"x<|\\\"|>y\"}");

  options = OptionsOf("openai");
  options.tokens = true;
  const Answer harmony = ParsePieces(options, {{"<|channel|>", true},
                                               {"commentary to=functions.f "},
                                               {"<|constrain|>", true},
                                               {"json"},
                                               {"<|message|>", true},
                                               {"{\"a\": \"<|call|>\"}"},
                                               {"<|call|>", true}});
  ASSERT_EQ(harmony.calls.size(), 1u);
  EXPECT_EQ(harmony.calls[0].arguments, "{\"a\": \"<|call|>\"}");

  options = OptionsOf("kimi_k2");
  options.tokens = true;
  const Answer kimi = ParsePieces(options, {{"<|tool_calls_section_begin|>", true},
                                            {"<|tool_call_begin|>", true},
                                            {"functions.f:3"},
                                            {"<|tool_call_argument_begin|>", true},
                                            {"{\"a\": "},
                                            {"<|tool_call_end|>", true},
                                            {"text"}});
  ASSERT_EQ(kimi.calls.size(), 1u);
  EXPECT_EQ(kimi.calls[0].id, "functions.f:3");
  EXPECT_EQ(kimi.calls[0].arguments, "{\"a\": ");  // a token ends what no bracket has ended
  EXPECT_EQ(kimi.content, "text");

  options = OptionsOf("deepseek_v32");
  options.tokens = true;
  const Answer dsml = ParsePieces(
      options,
      {{"<"}, {"｜DSML｜", true}, {"invoke name=\"f\">"}, {"</"}, {"｜DSML｜", true}, {"invoke>"}});
  ASSERT_EQ(dsml.calls.size(), 1u);
  EXPECT_EQ(dsml.content, "");
}

// `text` with the dialect's special marks as tokens, the rest byte by byte or in one piece.
std::vector<Piece> AsTokens(const Dialect& dialect, std::string_view text, bool bytes) {
  std::vector<std::string_view> marks = {dialect.named.separator.text,
                                         dialect.named.id.text,
                                         dialect.quote.text,
                                         "<|channel|>",
                                         "<|constrain|>",
                                         "<|message|>",
                                         "<|call|>"};
  for (const Trigger& trigger : dialect.triggers) {
    if (trigger.mark.special) marks.push_back(trigger.mark.text);
  }
  for (const auto& list : {dialect.openers, dialect.closers}) {
    for (const Mark& mark : list) {
      if (mark.special) marks.push_back(mark.text);
    }
  }
  std::vector<Piece> pieces;
  while (!text.empty()) {
    const Match mark = MatchAt(text, marks, false);
    const bool found = mark.kind == Match::Kind::kMark;
    const std::string piece(text.substr(0, found ? marks[mark.index].size() : 1));
    text.remove_prefix(piece.size());
    if (!found && !bytes && !pieces.empty() && !pieces.back().special) {
      pieces.back().text += piece;
    } else {
      pieces.push_back({piece, found});
    }
  }
  return pieces;
}

TEST(DialectTokens, AnAnswerInTokensSaysWhatItsTextSays) {
  for (const Dialect* dialect : Dialects()) {
    ParserOptions options = OptionsOf(dialect->name);
    const std::string text = std::string(dialect->example) + std::string(dialect->example);
    const Answer written = ParseWhole(options, text);
    options.tokens = true;
    EXPECT_GE(written.calls.size(), 2u) << dialect->name;
    for (const bool bytes : {false, true}) {
      const Answer tokens = ParsePieces(options, AsTokens(*dialect, text, bytes));
      EXPECT_EQ(tokens.calls, written.calls) << dialect->name;
      EXPECT_EQ(tokens.content, written.content) << dialect->name;
    }
  }
}

TEST(DialectTokens, AnEndOfTurnEndsACallAndIsNoText) {
  ParserOptions options = OptionsOf("qwen3_coder");
  options.tokens = true;
  const Answer answer = ParsePieces(
      options, {{"<tool_call>", true}, {"\n<function=f>\n<parameter=s>\nx"}, {"<|im_end|>", true}});
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].arguments, "{\"s\": \"x\"}");
  EXPECT_EQ(answer.content, "");
}

TEST(DialectDeltas, ComeAsSoonAsTheyAreSure) {
  Parser parser(OptionsOf("hermes"));
  EXPECT_EQ(parser.Text("Hello").size(), 1u);
  EXPECT_EQ(parser.Text(" <tool")[0].text, " ");
  EXPECT_EQ(parser.Text("box")[0].text, "<toolbox");
  EXPECT_TRUE(parser.Text("<tool_call>{\"name\": \"f").empty());
  EXPECT_EQ(parser.Text("\"")[0].text, "f");
  EXPECT_EQ(parser.Text(", \"arguments\": {\"a\": \"lo")[0].text, "{\"a\": \"lo");
  EXPECT_EQ(parser.Text("ng")[0].text, "ng");
}

TEST(DialectLimits, CallsPastTheirNumberAreText) {
  ParserOptions options = OptionsOf("hermes");
  options.limits.max_calls = 2;
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  Parser two(options);
  Answer answer;
  answer.Add(two.Text(call + call));
  answer.Add(two.Finish());
  EXPECT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.content, "");
  EXPECT_EQ(two.limit(), "");
  Parser three(options);
  answer = {};
  answer.Add(three.Text(call + call + call));
  answer.Add(three.Finish());
  EXPECT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.content, "{\"name\": \"f\", \"arguments\": {}}");
  EXPECT_EQ(three.limit(), "max_calls");
  EXPECT_EQ(DiffersAt(options, call + call + call), "");
}

TEST(DialectLimits, ArgumentBytesPastTheirNumberAreText) {
  ParserOptions options = OptionsOf("hermes");
  options.limits.max_argument_bytes = 8;
  const auto parse = [&](std::string_view arguments, Answer& answer) {
    const std::string text =
        "<tool_call>{\"name\": \"f\", \"arguments\": " + std::string(arguments) + "}</tool_call>";
    EXPECT_EQ(DiffersAt(options, text), "");
    Parser parser(options);
    answer.Add(parser.Text(text));
    answer.Add(parser.Finish());
    return std::string(parser.limit());
  };
  Answer fits, over;
  EXPECT_EQ(parse("{\"a\": 1}", fits), "");
  EXPECT_EQ(fits.calls[0].arguments, "{\"a\": 1}");
  EXPECT_EQ(parse("{\"a\": 12}", over), "max_argument_bytes");
  EXPECT_EQ(over.calls[0].arguments + over.content, "{\"a\": 12}");
}

TEST(DialectLimits, NestingPastItsDepthIsText) {
  for (const auto& [name, before, after] :
       {std::tuple{"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": ", "}</tool_call>"},
        std::tuple{"gemma4", "<|tool_call>call:f{a:", "}<tool_call|>"},
        std::tuple{"pythonic", "[f(a=", ")]"}}) {
    ParserOptions options = OptionsOf(name);
    options.limits.max_nesting = 4;
    const size_t outer = std::string_view(name) == "gemma4" ? 1 : 0;
    for (const size_t depth : {4 - outer, 5 - outer}) {
      const std::string text =
          before + std::string(depth, '[') + "1" + std::string(depth, ']') + after;
      Parser parser(options);
      Answer answer;
      answer.Add(parser.Text(text));
      answer.Add(parser.Finish());
      EXPECT_EQ(parser.limit(), depth == 4 - outer ? "" : "max_nesting") << text;
      EXPECT_EQ(answer.content.empty(), depth == 4 - outer) << text;
      EXPECT_EQ(DiffersAt(options, text), "");
    }
  }
}

TEST(DialectLimits, HeadsAreBounded) {
  constexpr std::pair<std::string_view, std::string_view> kHeads[] = {
      {"hermes", "<tool_call>{\"name\": \""},
      {"mistral", "[TOOL_CALLS]"},
      {"qwen3_coder", "<function="},
      {"glm45", "<tool_call>"},
      {"pythonic", "["},
      {"gemma4", "<|tool_call>call:"},
      {"openai", "<|channel|>"},
      {"kimi_k2", "<|tool_call_begin|>"}};
  for (const auto& [name, head] : kHeads) {
    ParserOptions options = OptionsOf(name);
    options.limits.max_head_bytes = 64;
    const std::string text = std::string(head) + std::string(200, 'f') + "\", >({[ARGS]";
    EXPECT_EQ(DiffersAt(options, text), "") << name;
    const Answer answer = ParseWhole(options, text);
    EXPECT_TRUE(answer.calls.empty()) << name;
    EXPECT_NE(answer.content.find(std::string(200, 'f')), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace quire::dialect
