// GBNF and structural tags: what each construct takes, in the style of llama.cpp's, vLLM's and
// xgrammar's own examples, and what is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/grammar/grammar_fixtures.h"

namespace quire::grammar {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  std::string source;
  std::vector<std::string> taken;
  std::vector<std::string> refused;
};

void Check(ConstraintKind kind, const Case& each) {
  const auto grammar = Compile(kind, each.source);
  ASSERT_TRUE(grammar.ok()) << each.source << ": " << grammar.status();
  for (const auto& text : each.taken) {
    EXPECT_TRUE(Takes(**grammar, text)) << each.source << "\nshould take " << text;
  }
  for (const auto& text : each.refused) {
    EXPECT_FALSE(Takes(**grammar, text)) << each.source << "\nshould refuse " << text;
  }
}

TEST(GbnfTest, EachConstructTakesItsTexts) {
  const Case cases[] = {
      {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "yesno"}},
      {"root ::= [a-c]+ \"end\"", {"aend", "abcend"}, {"end", "aen"}},
      {"root ::= [a-z]+ \"end\"", {"aend", "endend", "enxend"}, {"end"}},
      {"root ::= [^0-9\\n]{2,3}", {"ab", "a-c"}, {"a", "abcd", "a1", "a\n"}},
      {"root ::= \"a\"{2} \"b\"{1,} \"c\"{0,1}", {"aab", "aabbc"}, {"ab", "aabcc"}},
      {"root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\\\\\"", {"A\u00e9\U0001F600\t\"\\"}, {"A"}},
      {"root ::= [\\x61-\\x63\\]\\-]*", {"", "abc]-"}, {"d"}},
      {"root ::= . .?", {"x", "\u00e9\n"}, {"", "xyz"}},
      {"# a comment\nroot ::= first # more\n  \n\nfirst ::= (\"a\" |\n  \"b\" # in a group\n) "
       "\"c\"\n",
       {"ac", "bc"},
       {"c"}},
      {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", ")x("}},
      {"root ::= root \"+\" term | term\nterm ::= [0-9]+", {"1", "1+22+3"}, {"+", "1+"}},
      {"root ::= list\nlist ::= \"[\" ws (item (\",\" ws item)*)? \"]\" ws\nitem ::= list | [0-9]+ "
       "ws\n"
       "ws ::= [ \\t\\n]*",
       {"[]", "[ 1, [2 ,3],[] ]", "[[[[]]]]\n"},
       {"[1,]", "[", "1"}},
      {"root ::= a-b c_d\na-b ::= \"\" | \"-\"\nc_d ::= \"x\"*", {"", "-", "xx", "-x"}, {"--"}},
      {"root ::= \"u\" <|user|> \"v\"", {}, {"u<|user|>v"}},
  };
  for (const Case& each : cases) Check(ConstraintKind::kGrammar, each);
}

// A game's moves, arithmetic and JSON, in the manner of the examples that come with llama.cpp.
TEST(GbnfTest, WholeGrammars) {
  const Case moves = {
      R"(root   ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move   ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn   ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
)",
      {"1. e4 e5\n2. Nf3 Nc6\n", "1. e4 e5\n2. exd5 O-O-O+\n11. a8=Q Rxa8\n"},
      {"1. e4 e5\n", "1. e9 e5\n2. a4 a5\n"}};
  Check(ConstraintKind::kGrammar, moves);
  const Case arithmetic = {R"~(root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)~",
                           {"x = y\n", "(a1 +2) *3 = z\n1=2\n"},
                           {"x\n", "= y\n", "x = (y\n"}};
  Check(ConstraintKind::kGrammar, arithmetic);
  const Case json = {R"(root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)",
                     {"{}", "{\"a\": [1, -2.5e3, {\"b\\n\":null}],\n  \"c\":\"\\u00e9\"}"},
                     {"[]", "{\"a\":01}", "{\"a\"}"}};
  Check(ConstraintKind::kGrammar, json);
}

TEST(GbnfTest, LarkIsKnownByItsRules) {
  Check(ConstraintKind::kGrammar, {"start: \"a\" /b+/", {"abb"}, {"a"}});
  Check(ConstraintKind::kGrammar, {"%llguidance {}\nstart: \"a\"", {"a"}, {"b"}});
}

TEST(GbnfTest, WhatIsWrongIsNamedWithItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"x ::= \"a\"", "no rule \"root"},
      {"root ::= a", "rule \"a\" is not defined"},
      {"root ::= \"a\nroot ::= \"b\"", "line"},
      {"root ::= \"a\"\n\nroot ::= \"b\"", "rule \"root\" is defined twice"},
      {"root ::= [b-a]", "line 1: a class has a range"},
      {"root ::= \"\\q\"", "escape \\q"},
      {"root ::= \"\\ud800\"", "digits of a character"},
      {"root ::= (\"a\"", "expects \")\""},
      {"root ::= \"a\"{2,1}", "second number"},
      {"root ::= \"a\"{x}", "expects a number"},
      {"root ::= []", "matches nothing"},
      {"root ::= \"a\" )", "expects a new line"},
      {"root ::= !<|user|>", "not supported"},
  };
  for (const auto& [source, message] : cases) {
    const auto grammar = Compile(ConstraintKind::kGrammar, source);
    EXPECT_THAT(Refused(grammar.status()), HasSubstr(message)) << source;
    EXPECT_THAT(Refused(grammar.status()), HasSubstr(": constraint: ")) << source;
  }
}

constexpr char kCall[] = R"({"type":"tag","begin":"<f=a>","content":{"type":"json_schema",)"
                         R"("json_schema":{"enum":[1,true]}},"end":"</f>"})";

TEST(StructuralTagTest, OldOnesConstrainWhatFollowsATrigger) {
  const Case old = {
      R"({"type":"structural_tag","structures":[)"
      R"({"begin":"<f=a>","schema":{"type":"integer"},"end":"</f>"},)"
      R"({"begin":"<f=b>","schema":{"const":"x"},"end":"</f>"}],"triggers":["<f="]})",
      {"", "text", "a <f b", "hi <f=a>12</f> and <f=b>\"x\"</f>", "<f=a>1</f><f=a>2</f>."},
      {"<f=c>1</f>", "<f=a>x</f>", "hi <f=a>12", "<f="}};
  Check(ConstraintKind::kStructuralTag, old);
}

TEST(StructuralTagTest, EachFormatTakesItsTexts) {
  const std::string call = kCall;
  const auto triggered = [&](const std::string& more) {
    return R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f="],"tags":[)" +
           call + "]" + more + "}}";
  };
  const auto format = [](const std::string& inner) {
    return R"({"type":"structural_tag","format":)" + inner + "}";
  };
  const Case cases[] = {
      {format(call), {"<f=a>1</f>", "<f=a>true</f>"}, {"", "<f=a>2</f>"}},
      {triggered(""), {"", "x<f=a>1</f>y<f=a>1</f>"}, {"<f=b"}},
      {triggered(R"(,"at_least_one":true)"), {"x<f=a>1</f>y"}, {"", "x"}},
      {triggered(R"(,"stop_after_first":true)"), {"x", "x<f=a>1</f>"}, {"<f=a>1</f>y"}},
      {triggered(R"(,"excludes":["bad"])"), {"good<f=a>1</f>"}, {"so bad", "bad<f=a>1</f>"}},
      {format(R"({"type":"const_string","value":"a\"b"})"), {"a\"b"}, {"a"}},
      {format(R"({"type":"regex","pattern":"[0-9]{2}/x"})"), {"12/x"}, {"1"}},
      {format(R"~({"type":"grammar","grammar":"root ::= \"(\" root \")\" | [a-z]+"})~"),
       {"((ab))"},
       {"(a"}},
      {format(R"({"type":"any_text"})"), {"", "anything\n"}, {}},
      {format(R"({"type":"any_text","excludes":["<"]})"), {"x"}, {"a<b"}},
      {format(R"({"type":"sequence","elements":[{"type":"const_string","value":"<think>"},)"
              R"({"type":"any_text"},{"type":"const_string","value":"</think>"},)"
              R"({"type":"json_schema","json_schema":{"type":"null"}}]})"),
       {"<think></think>null", "<think>a < b</think>null"},
       {"<think>a", "<think></think>", "<think></think>x</think>null"}},
      {format(R"({"type":"or","elements":[{"type":"const_string","value":"a"},)"
              R"({"type":"star","content":{"type":"const_string","value":"b"}}]})"),
       {"a", "", "bb"},
       {"ab"}},
      {format(R"({"type":"optional","content":{"type":"const_string","value":"a"}})"),
       {"", "a"},
       {"aa"}},
      {format(R"({"type":"tag","begin":"[","content":{"type":"any_text"},"end":["]","!"]})"),
       {"[x]", "[!"},
       {"[x", "[x]y"}},
      {format(R"({"type":"tags_with_separator","separator":",","tags":[)" + call + "]}"),
       {"", "<f=a>1</f>,<f=a>true</f>"},
       {"<f=a>1</f>,"}},
  };
  for (const Case& each : cases) Check(ConstraintKind::kStructuralTag, each);
}

TEST(StructuralTagTest, WhatIsNotSupportedIsRefusedByName) {
  const auto refused = [](const std::string& source) {
    return Refused(Compile(ConstraintKind::kStructuralTag, source).status());
  };
  EXPECT_THAT(refused(R"({"format":{"type":"qwen_xml_parameter","json_schema":{}}})"),
              AllOf(StartsWith("fault 2"), HasSubstr("/format: type 'qwen_xml_parameter'"),
                    HasSubstr("supported: const_string")));
  EXPECT_THAT(refused(R"({"format":{"type":"sequence","elements":[{"type":"any_text"},)"
                      R"({"type":"regex","pattern":"x"}]}})"),
              HasSubstr("/format/elements/0: any_text in a sequence"));
  EXPECT_THAT(refused(R"({"format":{"type":"json_schema","json_schema":{"items":{"not":{}}}}})"),
              AllOf(StartsWith("fault 2"), HasSubstr("/format/json_schema/items/not")));
  EXPECT_THAT(refused(R"({"structures":[{"begin":"a","schema":{},"end":"b"}],"triggers":["x"]})"),
              AllOf(StartsWith("fault 1"), HasSubstr("begins with no trigger")));
  EXPECT_THAT(refused("{}"), StartsWith("fault 1"));
  EXPECT_THAT(refused("[1"), StartsWith("fault 1"));
  EXPECT_THAT(refused(R"({"format":{"type":"sequence","elements":[]}})"), HasSubstr("an item"));
}

}  // namespace
}  // namespace quire::grammar
