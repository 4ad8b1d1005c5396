#include "common/text/gguf_vocab.h"

#include "common/text/text_bundle.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kNormal = 1;
constexpr int32_t kUnknown = 2;
constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;
constexpr int32_t kByte = 6;

// <unk> <s> </s>, the byte tokens from 3, a user-defined run of spaces, then pieces from 260.
GgufVocab SentencePieceVocab() {
  GgufVocab vocab;
  vocab.model = "llama";
  const auto add = [&](std::string token, float score, int32_t type) {
    vocab.tokens.push_back(std::move(token));
    vocab.scores.push_back(score);
    vocab.token_types.push_back(type);
  };
  add("<unk>", 0, kUnknown);
  add("<s>", 0, kControl);
  add("</s>", 0, kControl);
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b) {
    add(std::string("<0x") + kDigits[b >> 4] + kDigits[b & 15] + ">", 0, kByte);
  }
  add("  ", -1000, kUserDefined);
  float score = -1;
  for (const char* piece : {"ab", "bc", "▁a", "abc", "▁ab", "▁", "a", "b", "c"}) {
    add(piece, score, kNormal);
    score -= 1;
  }
  vocab.bos_id = 1;
  vocab.eos_id = 2;
  vocab.unknown_id = 0;
  return vocab;
}

std::unique_ptr<Tokenizer> Converted(const GgufVocab& vocab) {
  const auto json = GgufVocabToTokenizerJson(vocab);
  EXPECT_TRUE(json.ok()) << json.status();
  auto tokenizer = Tokenizer::FromJson(json.value_or(""));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return std::move(*tokenizer);
}

TEST(GgufVocabTest, ScoresDecideWhichPairIsMergedFirst) {
  GgufVocab vocab = SentencePieceVocab();
  vocab.add_space_prefix = false;
  const auto tokenizer = Converted(vocab);
  // "ab" is better than "bc", so "abc" is made of "ab" and "c".
  EXPECT_THAT(*tokenizer->Encode("abc", false), ElementsAre(263));
  // Then "ab" + "c" is better than "▁" + "ab".
  EXPECT_THAT(*tokenizer->Encode(" abc", false), ElementsAre(265, 263));
  EXPECT_THAT(*tokenizer->Encode(" ab", false), ElementsAre(264));
  EXPECT_THAT(*tokenizer->Encode("  a", false), ElementsAre(259, 266));
  EXPECT_THAT(*tokenizer->Encode("é", true), ElementsAre(1, 3 + 0xC3, 3 + 0xA9));
  EXPECT_EQ(tokenizer->Decode(*tokenizer->Encode(" ab  cé", false), true), " ab  cé");
  EXPECT_TRUE(tokenizer->IsSpecial(1));
  EXPECT_FALSE(tokenizer->IsSpecial(259));
}

TEST(GgufVocabTest, TheSpacePrefixIsAddedAndTakenAway) {
  const auto tokenizer = Converted(SentencePieceVocab());
  const auto ids = *tokenizer->Encode("ab", true);
  EXPECT_THAT(ids, ElementsAre(1, 264));
  EXPECT_EQ(tokenizer->Decode(ids, true), "ab");
}

TEST(GgufVocabTest, ByteLevelVocabulariesComeWithTheirMerges) {
  GgufVocab vocab;
  vocab.model = "gpt2";
  vocab.pre = "llama-bpe";
  vocab.tokens = {"a", "b", "Ġ", "ab", "Ġab", "<|end|>"};
  vocab.token_types = {kNormal, kNormal, kNormal, kNormal, kNormal, kControl};
  vocab.merges = {"a b", "Ġ ab"};
  vocab.bos_id = 5;
  vocab.add_bos = false;
  const auto tokenizer = Converted(vocab);
  EXPECT_THAT(*tokenizer->Encode("ab ab<|end|>", true), ElementsAre(3, 4, 5));
  vocab.add_bos = std::nullopt;  // by default this kind adds it
  EXPECT_THAT(*Converted(vocab)->Encode("ab", true), ElementsAre(5, 3));
  vocab.add_eos = true;
  vocab.eos_id = 5;
  EXPECT_THAT(*Converted(vocab)->Encode("ab", true), ElementsAre(5, 3, 5));
}

// Qwen3.5 keeps marks with their letters, Qwen2 does not.
TEST(GgufVocabTest, ASplittingRuleDecidesWhatMarksJoin) {
  GgufVocab vocab;
  vocab.model = "gpt2";
  // A letter that NFC does not compose, U+0301 in byte-level spelling, and both.
  vocab.tokens = {"q", "\u00cc", "\u0123", "\u00cc\u0123", "q\u00cc\u0123", "x"};
  vocab.merges = {"\u00cc \u0123", "q \u00cc\u0123"};
  vocab.pre = "qwen35";
  EXPECT_THAT(*Converted(vocab)->Encode("xq\u0301", false), ElementsAre(5, 4));
}

// Gemma 4: SentencePiece's pieces with the merges of a tokenizer.json.
TEST(GgufVocabTest, PiecesWithMarksMayComeWithTheirMerges) {
  GgufVocab vocab = SentencePieceVocab();
  vocab.model = "gemma4";
  vocab.scores.clear();
  // "bc" comes first, although "ab" has the better score.
  vocab.merges = {"b c", "a b", "\u2581 a"};
  const auto tokenizer = Converted(vocab);
  const auto bc = *tokenizer->Encode("bc", false);
  ASSERT_EQ(bc.size(), 1u);
  const auto abc = *tokenizer->Encode("abc", false);
  ASSERT_EQ(abc.size(), 2u);
  EXPECT_EQ(abc[1], bc[0]);
  // No space is put before a text, and bytes have tokens of their own.
  EXPECT_THAT(*tokenizer->Encode("\u00e9", true), ElementsAre(1, 3 + 0xC3, 3 + 0xA9));
  EXPECT_EQ(tokenizer->Decode(*tokenizer->Encode(" ab  c\u00e9\n", false), true), " ab  c\u00e9\n");
  vocab.merges = {"nospace"};
  EXPECT_FALSE(GgufVocabToTokenizerJson(vocab).ok());
}

TEST(GgufVocabTest, EveryKnownSplittingRuleLoads) {
  GgufVocab vocab;
  vocab.model = "gpt2";
  vocab.tokens = {"a", "1", "2"};
  for (const char* pre :
       {"",          "default",     "gpt-2",    "opt",       "smollm",           "starcoder",
        "llama-bpe", "llama3",      "llama-v3", "smaug-bpe", "refact",           "command-r",
        "dbrx",      "chatglm-bpe", "glm4",     "qwen2",     "deepseek-r1-qwen", "megrez",
        "gpt-4o",    "tekken",      "qwen35",   "pixtral"}) {
    vocab.pre = pre;
    EXPECT_THAT(*Converted(vocab)->Encode("a12", false), ElementsAre(0, 1, 2)) << pre;
  }
}

TEST(GgufVocabTest, WhatIsWrongIsNamed) {
  const auto fails = [](const GgufVocab& vocab, std::string_view why) {
    const auto json = GgufVocabToTokenizerJson(vocab);
    ASSERT_FALSE(json.ok()) << why;
    EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(json.status().message()), HasSubstr(std::string(why)));
  };
  const GgufVocab good = SentencePieceVocab();
  GgufVocab vocab = good;
  vocab.model = "bert";
  fails(vocab, "supported: llama, gpt2, gemma4");
  vocab = good;
  vocab.tokens.clear();
  fails(vocab, "tokens: 0");
  vocab = good;
  vocab.scores.pop_back();
  fails(vocab, "scores");
  vocab = good;
  vocab.scores[262] = std::numeric_limits<float>::quiet_NaN();
  fails(vocab, "scores");
  vocab = good;
  vocab.token_types.pop_back();
  fails(vocab, "token_type");
  vocab = good;
  vocab.bos_id = 100'000;
  fails(vocab, "bos_token_id");
  vocab = good;
  vocab.eos_id = -2;
  fails(vocab, "eos_token_id");
  vocab = good;
  vocab.tokens[264] = vocab.tokens[265];
  fails(vocab, "are equal");
  vocab = good;
  vocab.tokens[264] = std::string(5000, 'x');
  fails(vocab, "longer");
  vocab = good;
  vocab.model = "gpt2";
  vocab.pre = "unheard-of";
  fails(vocab, "'unheard-of' is not supported; supported: default, gpt-2");
  vocab.pre = "qwen2";
  vocab.merges = {"nospace"};
  fails(vocab, "merges");
}

// Llama 3 ends a turn in three ways, of which its GGUF files name one.
TEST(GgufVocabTest, ControlTokensThatEndATurnAreEnds) {
  GgufVocab vocab = SentencePieceVocab();
  for (const char* token : {"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"}) {
    vocab.tokens.push_back(token);
    vocab.scores.push_back(-1000);
    vocab.token_types.push_back(kControl);
  }
  vocab.eos_id = 271;
  const auto bundle = TextBundleFromGguf(vocab);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_THAT(bundle->eos_token_ids, ElementsAre(269, 270, 271));
}

TEST(GgufVocabTest, ABundleCarriesSpecialsAndEnds) {
  GgufVocab vocab = SentencePieceVocab();
  vocab.tokens[1] = "<bos>";
  vocab.tokens.push_back("<end_of_turn>");
  vocab.scores.push_back(-1000);
  vocab.token_types.push_back(kControl);
  vocab.chat_template = "{{ bos_token }}";
  const auto bundle = TextBundleFromGguf(vocab);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_EQ(*bundle->FindSpecialToken("bos_token"), (NamedToken{"bos_token", "<bos>", 1}));
  EXPECT_THAT(bundle->eos_token_ids, ElementsAre(2, 269));
  EXPECT_EQ(*bundle->ChatTemplateSource(false), "{{ bos_token }}");
  EXPECT_EQ(*bundle->ChatTemplateSource(true), "{{ bos_token }}");
  vocab.tool_template = "T";
  EXPECT_EQ(*TextBundleFromGguf(vocab)->ChatTemplateSource(true), "T");
  EXPECT_TRUE(SerializeTextBundle(*bundle).ok());
}

}  // namespace
}  // namespace quire::text
