// Constraints over a vocabulary of letters: what each kind takes, what masks say, how texts end.
#include "common/grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/common/grammar/grammar_fixtures.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::grammar {
namespace {

using ::testing::HasSubstr;

TEST(GrammarTest, EachKindTakesItsTextsAndNoOthers) {
  struct Case {
    ConstraintKind kind;
    std::string_view source;
    std::vector<std::string_view> taken;
    std::vector<std::string_view> refused;
  };
  const Case cases[] = {
      {ConstraintKind::kJsonSchema,
       R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"enum":["x","y"]}},)"
       R"("required":["b","a"],"additionalProperties":false})",
       {R"({"b":12,"a":"x"})", "{\n  \"b\": -3,\n  \"a\": \"y\"\n}"},
       {R"({"a":"x","b":1})", R"({"b":1.5,"a":"x"})", R"({"b":1})", "[]", ""}},
      {ConstraintKind::kJsonSchema, "true", {"1", "[{}]", "\"\""}, {"", "nul"}},
      {ConstraintKind::kJsonObject, "", {"{}", R"({"a":[1,{"b":null}]})"}, {"[]", "1", "{"}},
      {ConstraintKind::kRegex, "[a-c]+\\d?", {"a", "abc1"}, {"", "1", "ab12"}},
      {ConstraintKind::kRegex, "^(yes|no)$", {"yes", "no"}, {"ye", "yesno"}},
      {ConstraintKind::kRegex, "a/b\\$", {"a/b$"}, {"a/b"}},
      {ConstraintKind::kChoice,
       R"(["he","hello","a\"\n\\"])",
       {"he", "hello", "a\"\n\\"},
       {"", "hel"}},
      {ConstraintKind::kChoice, R"(["","x"])", {"", "x"}, {"xx"}},
      {ConstraintKind::kLark, "start: \"a\" b?\nb: /[0-9]{2}/", {"a", "a42"}, {"", "a4", "b"}},
  };
  for (const Case& each : cases) {
    const auto grammar = Compile(each.kind, each.source);
    ASSERT_TRUE(grammar.ok()) << each.source << ": " << grammar.status();
    for (const auto text : each.taken) EXPECT_TRUE(Takes(**grammar, text)) << each.source << text;
    for (const auto text : each.refused)
      EXPECT_FALSE(Takes(**grammar, text)) << each.source << text;
  }
}

TEST(GrammarTest, EndIsInTheMaskExactlyWhereTheTextMayEnd) {
  const auto grammar = Compile(ConstraintKind::kRegex, "ab?");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const auto matcher = (*grammar)->NewMatcher();
  EXPECT_FALSE(Has(MaskOf(*matcher), kEnd));
  EXPECT_FALSE(matcher->MayEnd());
  ASSERT_TRUE(matcher->Accept(Bytes("a")).ok());
  EXPECT_TRUE(Has(MaskOf(*matcher), kEnd) && Has(MaskOf(*matcher), 'b'));
  EXPECT_TRUE(matcher->MayEnd() && !matcher->Finished());
  const auto ended = matcher->Fork();
  const TokenId end = kEnd;
  ASSERT_TRUE(ended->Accept({&end, 1}).ok());
  EXPECT_TRUE(ended->Finished());
  EXPECT_FALSE(ended->Accept(Bytes("b")).ok());
  ASSERT_TRUE(matcher->Accept(Bytes("b")).ok());
  EXPECT_TRUE(matcher->Finished() && matcher->MayEnd());
  std::vector<uint32_t> only(TinyVocabulary()->mask_words());
  only[kEnd / 32] = 1u << (kEnd % 32);
  EXPECT_EQ(MaskOf(*matcher), only);
  EXPECT_TRUE(matcher->Accept({&end, 1}).ok());
}

TEST(GrammarTest, TheEndIsRefusedWhereTheTextMayNotEnd) {
  const auto grammar = Compile(ConstraintKind::kRegex, "ab");
  const auto matcher = (*grammar)->NewMatcher();
  const std::vector<TokenId> ids = {'a', kEnd};
  const absl::Status status = matcher->Accept(ids);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("index 1"));
  EXPECT_TRUE(matcher->Accept(Bytes("b")).ok());
  EXPECT_TRUE(matcher->Finished());
}

TEST(GrammarTest, BitsAboveTheTokenizerStayClear) {
  const auto grammar = Compile(ConstraintKind::kLark, "start: <[*]> /.*/");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const std::vector<uint32_t> mask = MaskOf(*(*grammar)->NewMatcher());
  ASSERT_EQ(mask.size(), size_t{10});
  EXPECT_TRUE(Has(mask, 'a') && Has(mask, kUserMark));
  EXPECT_FALSE(Has(mask, kEnd));
  for (TokenId id = 265; id < 320; ++id) EXPECT_FALSE(Has(mask, id)) << id;
}

TEST(GrammarTest, ASpecialTokenIsWrittenByItsNameAlone) {
  const auto grammar = Compile(ConstraintKind::kLark, "start: \"<|user|>\" | \"a\" <|user|> \"b\"");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const auto matcher = (*grammar)->NewMatcher();
  EXPECT_FALSE(Has(MaskOf(*matcher), kUserMark));
  const std::vector<TokenId> ids = {'a', kUserMark, 'b'};
  EXPECT_TRUE(matcher->Accept(ids).ok());
  EXPECT_TRUE(matcher->Finished());
  EXPECT_TRUE(Takes(**grammar, "<|user|>"));
}

TEST(GrammarTest, WhiteSpaceEnds) {
  const auto grammar = Compile(ConstraintKind::kJsonSchema, R"({"type":"array","minItems":1})");
  EXPECT_TRUE(Takes(**grammar, "[" + std::string(64, ' ') + "1]"));
  EXPECT_FALSE(Takes(**grammar, "[" + std::string(65, ' ') + "1]"));
  Constraint constraint = Of(ConstraintKind::kJsonObject, "");
  constraint.compact = true;
  EXPECT_FALSE(Takes(**Compile(constraint), "{ }"));
  EXPECT_TRUE(Takes(**Compile(constraint), R"({"a":1,"b":[]})"));
  constraint.compact = false;
  constraint.whitespace_pattern = " ?";
  ASSERT_TRUE(Compile(constraint).ok()) << Compile(constraint).status();
  EXPECT_TRUE(Takes(**Compile(constraint), "{ \"a\": 1}"));
  EXPECT_FALSE(Takes(**Compile(constraint), "{  }"));
}

TEST(GrammarTest, ClosedObjectsTakeNoOtherProperties) {
  Constraint constraint =
      Of(ConstraintKind::kJsonSchema, R"({"properties":{"a":{"type":"object","properties":{},)"
                                      R"("additionalProperties":true}}})");
  EXPECT_TRUE(Takes(**Compile(constraint), R"({"b":1})"));
  constraint.closed = true;
  EXPECT_FALSE(Takes(**Compile(constraint), R"({"b":1})"));
  EXPECT_TRUE(Takes(**Compile(constraint), R"({"a":{"c":1}})"));
}

TEST(GrammarTest, ForcedTokensAreWhatMasksLeave) {
  const auto grammar = Compile(ConstraintKind::kRegex, "(hello world|hello wide)!");
  const auto matcher = (*grammar)->NewMatcher();
  const auto forced = matcher->Forced();
  ASSERT_TRUE(forced.ok());
  const std::vector<TokenId> ids(forced->begin(), forced->end());
  ASSERT_FALSE(ids.empty());
  EXPECT_EQ(ids[0], 259);  // "hello", as the tokenizer writes it
  for (const TokenId id : ids) {
    std::vector<uint32_t> only(TinyVocabulary()->mask_words());
    only[static_cast<size_t>(id) / 32] = 1u << (id % 32);
    EXPECT_EQ(MaskOf(*matcher), only);
    ASSERT_TRUE(matcher->Accept({&id, 1}).ok());
  }
}

// Far more than the tokenizer is given at a time.
TEST(GrammarTest, ForcedTokensOfALongTextSpellItToItsEnd) {
  std::string text;
  while (text.size() < 20'000) text += "hello ";
  const auto grammar = Compile(ConstraintKind::kChoice, "[\"" + text + "\"]");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const auto matcher = (*grammar)->NewMatcher();
  std::vector<TokenId> spelled;
  while (!matcher->Finished()) {
    const auto forced = matcher->Forced();
    ASSERT_TRUE(forced.ok());
    const std::vector<TokenId> ids(forced->begin(), forced->end());
    ASSERT_FALSE(ids.empty()) << spelled.size();
    const std::vector<uint32_t> mask = MaskOf(*matcher);
    EXPECT_TRUE(Has(mask, ids[0]));
    for (TokenId id = 0; id < kWidth; ++id) {
      EXPECT_EQ(Has(mask, id), id == ids[0]) << spelled.size() << " " << id;
    }
    ASSERT_TRUE(matcher->Accept(ids).ok());
    spelled.insert(spelled.end(), ids.begin(), ids.end());
  }
  std::vector<TokenId> words;
  for (size_t i = 0; i < text.size() / 6; ++i) words.insert(words.end(), {259, ' '});
  EXPECT_EQ(spelled, words);
}

// Picks among the allowed tokens at random; gives the tokens and the mask before each.
struct WalkResult {
  std::vector<TokenId> ids;
  std::vector<std::vector<uint32_t>> masks;
};
WalkResult RandomWalk(const Grammar& grammar, uint32_t seed) {
  std::mt19937 random(seed);
  WalkResult walk;
  const auto matcher = grammar.NewMatcher();
  while (walk.ids.size() < 60 && !matcher->Finished()) {
    walk.masks.push_back(MaskOf(*matcher));
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < kWidth; ++id) {
      if (Has(walk.masks.back(), id)) allowed.push_back(id);
    }
    if (allowed.empty()) return walk;
    walk.ids.push_back(allowed[random() % allowed.size()]);
    EXPECT_TRUE(matcher->Accept({&walk.ids.back(), 1}).ok());
  }
  return walk;
}

TEST(GrammarTest, AMatcherIsAFunctionOfItsTokens) {
  const auto grammar = Compile(
      ConstraintKind::kJsonSchema,
      R"({"type":"object","properties":{"hello":{"type":"string","maxLength":6},"b":{"type":)"
      R"("array","items":{"enum":[1,2,null,"hell"]}}},"required":["hello","b"]})");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const WalkResult walk = RandomWalk(**grammar, seed);
    for (size_t at = 0; at < walk.masks.size(); at += 1 + seed % 3) {
      const auto resumed = (*grammar)->NewMatcher();
      ASSERT_TRUE(resumed->Accept(std::span(walk.ids).first(at)).ok()) << seed << " " << at;
      EXPECT_EQ(MaskOf(*resumed), walk.masks[at]) << seed << " " << at;
      const auto fork = resumed->Fork();
      EXPECT_EQ(MaskOf(*fork), walk.masks[at]);
      ASSERT_TRUE(fork->Accept({&walk.ids[at], 1}).ok());
      EXPECT_EQ(MaskOf(*resumed), walk.masks[at]);  // the fork's token is not its
    }
  }
}

TEST(GrammarTest, MemoryIsCounted) {
  const auto small = Compile(ConstraintKind::kRegex, "a");
  const auto large = Compile(ConstraintKind::kRegex, "([a-z]{3,40}[0-9]{2,60}x){1,9}");
  EXPECT_GT((*large)->MemoryBytes(), (*small)->MemoryBytes());
  EXPECT_LT((*small)->MemoryBytes(), size_t{4} << 20);
  EXPECT_GT((*large)->NewMatcher()->MemoryBytes(), size_t{1} << 10);
  const auto tokenizer = text::Tokenizer::FromJson(text::TinyByteLevelJson());
  EXPECT_GE(Vocabulary::EstimateBytes(**tokenizer), TinyVocabulary()->MemoryBytes());
  EXPECT_GT(TinyVocabulary()->MemoryBytes(), size_t{1} << 12);
}

TEST(GrammarTest, ACancelledCompilationSaysSo) {
  const std::atomic<bool> cancelled = true;
  const auto grammar =
      Grammar::Compile(TinyVocabulary(), Of(ConstraintKind::kJsonObject, ""), Limits(), &cancelled);
  EXPECT_EQ(FaultOf(grammar.status()), Fault::kCancelled);
  EXPECT_EQ(grammar.status().code(), absl::StatusCode::kCancelled);
}

TEST(GrammarTest, AVocabularyRefusesEndsAboveItsWidth) {
  const auto tokenizer = text::Tokenizer::FromJson(text::TinyByteLevelJson());
  const TokenId end = kWidth;
  EXPECT_FALSE(Vocabulary::Make(**tokenizer, kWidth, {&end, 1}).ok());
  EXPECT_FALSE(Vocabulary::Make(**tokenizer, 0, {}).ok());
  EXPECT_TRUE(Vocabulary::Make(**tokenizer, 262, {}).ok());  // narrower than its tokens
}

}  // namespace
}  // namespace quire::grammar
