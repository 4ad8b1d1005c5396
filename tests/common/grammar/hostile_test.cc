// Constraints are hostile input: each bound at its limit and one above, each refusal with its fault
// and place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/common/grammar/grammar_fixtures.h"

namespace quire::grammar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Schema(const std::string& source, const Limits& limits = {}) {
  return Refused(Compile(ConstraintKind::kJsonSchema, source, limits).status());
}

std::string Repeat(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string Nested(int depth) {  // schemas inside the root
  return Repeat(R"({"properties":{"a":)", depth) + R"({"type":"null"})" + Repeat("}}", depth);
}

TEST(HostileTest, SchemasNestToTheLimit) {
  EXPECT_EQ(Schema(Nested(64)), "ok");
  EXPECT_THAT(Schema(Nested(65)),
              AllOf(StartsWith("fault 4: constraint: /properties/a/"), HasSubstr("64 levels")));
  Limits limits;
  limits.max_depth = 3;
  EXPECT_EQ(Schema(Nested(3), limits), "ok");
  EXPECT_THAT(Schema(Nested(4), limits), StartsWith("fault 4"));
  EXPECT_THAT(Schema(Repeat("[", 100'000)), StartsWith("fault 4"));
  EXPECT_THAT(Schema(Repeat(R"({"items":)", 12'000)), StartsWith("fault 4"));
  EXPECT_THAT(Schema(R"({"const":)" + Repeat("[", 264) + Repeat("]", 264) + "}"),
              StartsWith("fault 4"));
}

std::string Chain(int length) {
  std::string schema = R"({"$ref":"#/a0")";
  for (int i = 0; i < length; ++i) {
    absl::StrAppend(&schema, ",\"a", i, R"(":{"items":{"$ref":"#/a)", i + 1, "\"}}");
  }
  return absl::StrCat(schema, ",\"a", length, R"(":{"type":"null"}})");
}

TEST(HostileTest, ReferencesAreFollowedToTheLimit) {
  EXPECT_EQ(Schema(Chain(2040)), "ok");  // two levels each, and the root's
  EXPECT_THAT(Schema(Chain(2060)), AllOf(StartsWith("fault 4"), HasSubstr("at most 4096")));
  EXPECT_EQ(Schema(R"({"type":"object","properties":{"next":{"$ref":"#"}}})"), "ok");
  EXPECT_EQ(Schema(R"({"$ref":"#/$defs/a","$defs":{"a":{"items":{"$ref":"#/$defs/a"}}}})"), "ok");
  EXPECT_NE(Schema(R"({"$ref":"#"})"), "");  // ends
  EXPECT_NE(
      Schema(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})"),
      "");
  EXPECT_THAT(
      Schema(R"({"properties":{"a":{"$ref":"http://127.0.0.1:1/x.json"}}})"),
      AllOf(StartsWith("fault 2: constraint: /properties/a: "), HasSubstr("never fetched")));
  EXPECT_THAT(Schema(R"({"$id":"http://x/y","items":{"$ref":"http://127.0.0.1:1/x.json"}})"),
              StartsWith("fault"));
  EXPECT_THAT(Schema(R"({"items":{"$ref":"#/$defs/gone"}})"),
              AllOf(StartsWith("fault 1: constraint: /items: "), HasSubstr("names nothing")));
}

TEST(HostileTest, WhatIsNotCompiledIsNamedWithItsPlace) {
  EXPECT_THAT(Schema(R"({"properties":{"a/b":{"not":{}}}})"),
              AllOf(StartsWith("fault 2: constraint: /properties/a~1b/not: is not supported"),
                    HasSubstr("supported: type, enum")));
  EXPECT_THAT(Schema(R"({"$ref":"#/$defs/x","$defs":{"x":{"uniqueItems":true},"y":{"not":{}}}})"),
              StartsWith("fault 2: constraint: /$ref/uniqueItems"));
  EXPECT_THAT(Schema(R"({"type":"string","format":"byte"})"),
              AllOf(StartsWith("fault 2: constraint: /: format 'byte'"), HasSubstr("date-time")));
  EXPECT_EQ(Schema(R"({"items":{"not":{}},"x-guidance":{"lenient":true}})"), "ok");
  EXPECT_THAT(Schema(R"({"oneOf":[{"minimum":1},{"maximum":5}]})"), StartsWith("fault 2"));
  EXPECT_EQ(
      Schema(R"({"oneOf":[{"minimum":1},{"maximum":5}],"x-guidance":{"coerce_one_of":true}})"),
      "ok");
  EXPECT_THAT(Schema(R"({"x-guidance":{"max_fuel":1}})"),
              StartsWith("fault 2: constraint: /x-guidance/max_fuel"));
  EXPECT_THAT(Schema(R"({"x-guidance":{"lenient":1}})"), StartsWith("fault 1"));
  EXPECT_THAT(Schema(R"({"x-guidance":{"whitespace_pattern":"a{99999}"}})"), StartsWith("fault 3"));
  EXPECT_THAT(Schema(R"({"pattern":"(?=x)y"})"), StartsWith("fault 2"));
  EXPECT_THAT(Schema("{"), StartsWith("fault 1: constraint: no JSON"));
  EXPECT_THAT(Schema("3"), StartsWith("fault 1"));
  EXPECT_THAT(Schema("{\"items\": 3}"), StartsWith("fault 1"));
  EXPECT_THAT(Schema(R"({"type":"text"})"), StartsWith("fault 1"));
}

TEST(HostileTest, WhatMatchesNothingSaysSo) {
  const std::pair<ConstraintKind, const char*> cases[] = {
      {ConstraintKind::kJsonSchema, "false"},
      {ConstraintKind::kJsonSchema, R"({"allOf":[{"type":"string"},{"type":"null"}]})"},
      {ConstraintKind::kJsonSchema, R"({"type":"integer","minimum":2,"maximum":1})"},
      {ConstraintKind::kRegex, "[a&&b]"},
      {ConstraintKind::kChoice, "[]"},
      {ConstraintKind::kLark, "start: A\nA: /a/ & /b/"},
  };
  for (const auto& [kind, source] : cases) {
    EXPECT_THAT(Refused(Compile(kind, source).status()), StartsWith("fault 6")) << source;
  }
}

TEST(HostileTest, ATokenThatIsMissingSaysSo) {
  EXPECT_THAT(Refused(Compile(ConstraintKind::kLark, "start: <|nobody|>").status()),
              StartsWith("fault 7"));
  EXPECT_THAT(Refused(Compile(ConstraintKind::kLark, "start: <[100000]>").status()),
              StartsWith("fault 7"));
  EXPECT_THAT(Refused(Compile(ConstraintKind::kLark, "start: <[290]>").status()),
              StartsWith("fault 7"));  // below the width, above the tokenizer
}

TEST(HostileTest, ExpressionsAreBounded) {
  const auto regex = [](const std::string& source, const Limits& limits = {}) {
    return Refused(Compile(ConstraintKind::kRegex, source, limits).status());
  };
  EXPECT_EQ(regex(Repeat("(", 100) + "a" + Repeat(")", 100)), "ok");
  EXPECT_THAT(regex(Repeat("(", 101) + "a" + Repeat(")", 101)), StartsWith("fault 4"));
  EXPECT_THAT(regex(Repeat("(", 100'000)), StartsWith("fault 4"));
  EXPECT_EQ(regex(Repeat("\\d", 2048)), "ok");
  EXPECT_THAT(regex(Repeat("\\d", 2049)), StartsWith("fault 3"));
  EXPECT_EQ(regex("a{65536}"), "ok");
  EXPECT_THAT(regex("a{65537}"), StartsWith("fault 3"));
  EXPECT_THAT(regex("a{99999999999999999999}"), StartsWith("fault 3"));
  EXPECT_NE(regex("((((((((a*)*)*)*)*)*)*)*)*b"), "");  // ends
  EXPECT_NE(regex("(.*a.{12}){20}"), "");
  EXPECT_NE(regex(Repeat("a?", 5000) + Repeat("a", 5000)), "");
  EXPECT_NE(regex("(((a{1000}){1000}){1000}){1000}"), "");
  EXPECT_THAT(regex("("), StartsWith("fault 1"));
  EXPECT_THAT(regex(""), StartsWith("fault 1"));
  EXPECT_THAT(regex("(?<=a)b"), StartsWith("fault 2"));
  EXPECT_THAT(regex("a\xff"), HasSubstr("UTF-8"));
}

TEST(HostileTest, StepsAndStatesAreCounted) {
  Limits limits;
  limits.initial_lexer_fuel = 100;
  EXPECT_THAT(Schema(R"~({"pattern":"([a-z]{3,9}-){4}(x|y|zz)*"})~", limits),
              StartsWith("fault 5"));
  limits = {};
  limits.max_grammar_symbols = 10;
  EXPECT_THAT(Schema(R"({"properties":{"a":{"type":"array"},"b":{"type":"object"}}})", limits),
              StartsWith("fault 3"));
}

// Of a matcher that takes letters and asks for masks until one fails.
absl::Status RunOut(ConstraintKind kind, const std::string& source, const Limits& limits) {
  const auto grammar = Compile(kind, source, limits);
  if (!grammar.ok()) return grammar.status();
  const auto matcher = (*grammar)->NewMatcher();
  std::vector<uint32_t> mask(TinyVocabulary()->mask_words());
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    status = matcher->Accept(Bytes(i % 3 == 0 ? "a" : "x"));
    if (status.ok()) status = matcher->Mask(mask);
  }
  return status;
}

TEST(HostileTest, EachMaskAndTokenIsCounted) {
  const std::string states = "(.*a.{10}b)+";
  const std::string items = "start: (/[a-x]/ start?)+ | /[a-y]/ start start | \"\"";
  EXPECT_EQ(Refused(RunOut(ConstraintKind::kRegex, states, {})), "ok");
  Limits limits;
  limits.step_lexer_fuel = 20;
  EXPECT_THAT(Refused(RunOut(ConstraintKind::kRegex, states, limits)), StartsWith("fault 5"));
  limits = {};
  limits.max_lexer_states = 40;
  EXPECT_EQ(FaultOf(RunOut(ConstraintKind::kRegex, states, limits)), Fault::kTooLarge);
  limits = {};
  limits.step_max_items = 50;
  EXPECT_THAT(Refused(RunOut(ConstraintKind::kLark, items, limits)), StartsWith("fault 5"));
  limits = {};
  limits.max_items_in_row = 10;
  EXPECT_THAT(Refused(RunOut(ConstraintKind::kLark, items, limits)), StartsWith("fault 5"));
}

TEST(HostileTest, AMatcherThatRanOutSaysSoForGood) {
  Limits limits;
  limits.max_lexer_states = 40;
  const auto grammar = Compile(ConstraintKind::kRegex, "(.*a.{10}b)+", limits);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const auto matcher = (*grammar)->NewMatcher();
  absl::Status status;
  std::vector<uint32_t> mask(TinyVocabulary()->mask_words());
  for (int i = 0; i < 200 && status.ok(); ++i) {
    status = matcher->Accept(Bytes(i % 3 == 0 ? "a" : "x"));
    if (status.ok()) status = matcher->Mask(mask);
  }
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(FaultOf(status), Fault::kTooLarge) << status;
  EXPECT_EQ(matcher->Accept(Bytes("a")), status);
  EXPECT_EQ(matcher->Mask(mask), status);
  EXPECT_EQ(matcher->Fork()->Mask(mask).code(), status.code());
  EXPECT_FALSE(matcher->MayEnd() || matcher->Finished());
}

TEST(HostileTest, LargeListsEnd) {
  std::string list = "[\"x\"";
  for (int i = 0; list.size() < kMaxConstraintBytes - 100; ++i)
    absl::StrAppend(&list, ",\"choice ", i, "\"");
  list += "]";
  EXPECT_EQ(Refused(Compile(ConstraintKind::kChoice, list).status()), "ok");
  EXPECT_EQ(Schema(absl::StrCat("{\"enum\":", list, "}")), "ok");
  EXPECT_THAT(Schema(std::string(kMaxConstraintBytes + 1, ' ')), StartsWith("fault 3"));
  EXPECT_THAT(Schema(std::string(kMaxConstraintBytes, ' ')), StartsWith("fault 1"));
  EXPECT_NE(Schema(R"({"type":"array","minItems":1000000000})"), "");
  EXPECT_NE(Schema(R"({"type":"string","minLength":1000000000})"), "");
  // Every alternative would get a copy of the text.
  const std::string text(30'000, 'x');
  EXPECT_THAT(Schema(absl::StrCat(R"({"properties":{"a":{"const":")", text, R"("}},"anyOf":[)",
                                  Repeat(R"({"minProperties":1},)", 4000), "{}]}")),
              StartsWith("fault 3"));
}

TEST(HostileTest, RulesNestToTheLimit) {
  const auto lark = [](const std::string& source) {
    return Refused(Compile(ConstraintKind::kLark, source).status());
  };
  const auto gbnf = [](const std::string& source) {
    return Refused(Compile(ConstraintKind::kGrammar, source).status());
  };
  EXPECT_EQ(lark("start: " + Repeat("(", 28) + "\"a\"" + Repeat(")", 28)), "ok");
  EXPECT_THAT(lark("start: " + Repeat("(", 29) + "\"a\"" + Repeat(")", 29)), StartsWith("fault 4"));
  EXPECT_EQ(gbnf("root ::= " + Repeat("(", 64) + "\"a\"" + Repeat(")", 64)), "ok");
  EXPECT_THAT(gbnf("root ::= " + Repeat("(", 65) + "\"a\"" + Repeat(")", 65)),
              StartsWith("fault 4"));
  const auto chain = [](int length, const char* is) {
    std::string rules;
    for (int i = 0; i < length; ++i) absl::StrAppend(&rules, "a", i, is, "\"x\" a", i + 1, "\n");
    return absl::StrCat(rules, "a", length, is, "\"y\"\n");
  };
  EXPECT_EQ(lark("start: a0\n" + chain(4090, ": ")), "ok");
  EXPECT_THAT(lark("start: a0\n" + chain(4100, ": ")), StartsWith("fault 4"));
  EXPECT_THAT(gbnf("root ::= a0\n" + chain(4100, " ::= ")), StartsWith("fault 4"));
  std::string doubled = "a0 ::= \"x\"\n";
  for (int i = 1; i < 60; ++i)
    absl::StrAppend(&doubled, "a", i, " ::= a", i - 1, " a", i - 1, "\n");
  EXPECT_NE(gbnf("root ::= a59\n" + doubled), "");  // ends
  EXPECT_THAT(lark("start: %lark { start: \"a\" }"), StartsWith("fault 2"));
  EXPECT_THAT(lark("start: %json {\"not\": {}}"), StartsWith("fault 2: constraint: /not"));
  EXPECT_THAT(lark("start: \"a"), StartsWith("fault 1"));
  EXPECT_THAT(lark(""), StartsWith("fault 1"));
  EXPECT_NE(lark("start: \"a\"{1000000000}"), "ok");
  EXPECT_NE(lark("start: " + Repeat("~", 50'000) + "\"a\""), "ok");
}

}  // namespace
}  // namespace quire::grammar
