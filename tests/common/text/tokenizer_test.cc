#include "common/text/tokenizer.h"

#include <algorithm>
#include <ctime>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kByteLevelSplit = "\"pre_tokenizer\":{\"type\":\"ByteLevel\"";

std::unique_ptr<Tokenizer> Load(const std::string& json) {
  auto tokenizer = Tokenizer::FromJson(json);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TokenizerTest, EncodesByMergesAndAddsSpecialTokensOnlyWhenAsked) {
  const auto tokenizer = Load(TinyByteLevelJson());
  EXPECT_THAT(*tokenizer->Encode("hello w", false), ElementsAre(259, 260));
  EXPECT_THAT(*tokenizer->Encode("hello w", true), ElementsAre(261, 259, 260));
  EXPECT_THAT(*tokenizer->Encode("", false), ElementsAre());
  EXPECT_THAT(*tokenizer->Encode("", true), ElementsAre(261));
  EXPECT_THAT(*tokenizer->Encode("<|user|>he</s>", false), ElementsAre(263, 256, 262));
}

TEST(TokenizerTest, TellsItsVocabulary) {
  const auto tokenizer = Load(TinyByteLevelJson());
  EXPECT_EQ(tokenizer->VocabSize(), 265);
  EXPECT_TRUE(tokenizer->Exists(264));
  EXPECT_FALSE(tokenizer->Exists(265));
  EXPECT_FALSE(tokenizer->Exists(-1));
  EXPECT_TRUE(tokenizer->IsSpecial(261));
  EXPECT_FALSE(tokenizer->IsSpecial(259));
  EXPECT_EQ(tokenizer->TokenBytes(260), " w");
  EXPECT_EQ(tokenizer->TokenBytes(0x80), "\x80");
  EXPECT_EQ(tokenizer->TokenBytes(999), "");
  EXPECT_EQ(tokenizer->IdToPiece(260), "Ġw");
  EXPECT_EQ(tokenizer->IdToPiece(-5), "");
  EXPECT_EQ(tokenizer->PieceToId("<|user|>"), 263);
  EXPECT_EQ(tokenizer->PieceToId("nothing"), std::nullopt);
  EXPECT_THAT(tokenizer->PrefixTokens(), ElementsAre(261));
  EXPECT_THAT(tokenizer->SuffixTokens(), ElementsAre());
}

TEST(TokenizerTest, DecodesWithAndWithoutSpecialTokens) {
  const auto tokenizer = Load(TinyByteLevelJson());
  const std::vector<int32_t> ids = {261, 259, 260, 262, 70000, -1};
  EXPECT_EQ(tokenizer->Decode(ids, true), "hello w");
  EXPECT_EQ(tokenizer->Decode(ids, false), "<s>hello w</s>");
}

TEST(TokenizerTest, FallsBackToBytesAndStripsTheAddedSpace) {
  const auto tokenizer = Load(TinySentencePieceJson());
  const auto ids = *tokenizer->Encode("hi 好 ab", false);
  EXPECT_THAT(ids, ElementsAre(265, 259, 3 + 0xE5, 3 + 0xA5, 3 + 0xBD, 259, 266));
  EXPECT_EQ(tokenizer->Decode(ids, true), "hi 好 ab");
  EXPECT_TRUE(tokenizer->decode_rules().replace_each_byte);
}

TEST(TokenizerTest, EqualsTheLibrarysOwnPipeline) {
  for (const std::string& json : {TinyByteLevelJson(), TinySentencePieceJson()}) {
    const auto tokenizer = Load(json);
    for (const std::string& text : ReferenceStrings()) {
      ASSERT_EQ(*tokenizer->Encode(text, true), *Tokenizer::EncodeByReference(json, text, true))
          << text;
    }
  }
}

// Five pieces that overlap, so that each merge makes and spoils others of higher and lower rank.
std::string OverlappingMerges() {
  std::string json = TinyByteLevelJson();
  json = Replaced(json, "\"he\":256,\"ll\":257,\"hell\":258,\"hello\":259,\"\u0120w\":260",
                  "\"aa\":256,\"ab\":257,\"aaaa\":258,\"aba\":259,\"aaab\":260");
  return Replaced(json, R"(["h e","l l","he ll","hell o","Ġ w"])",
                  R"([["aa","aa"],["ab","a"],["a","b"],["a","a"],["aa","ab"]])");
}

TEST(TokenizerTest, WordsOfAnyLengthMergeInTheLibrarysOrder) {
  const std::string json = OverlappingMerges();
  const auto tokenizer = Load(json);
  uint32_t state = 1;
  for (size_t length = 1; length < 400; length += 1 + length / 8) {
    for (int round = 0; round < 4; ++round) {
      std::string word;
      while (word.size() < length) {
        state = state * 1664525 + 1013904223;
        word += round == 0 || (state >> 28) % 4 != 0 ? 'a' : 'b';
      }
      ASSERT_EQ(*tokenizer->Encode(word, false), *Tokenizer::EncodeByReference(json, word, false))
          << word;
    }
  }
}

TEST(TokenizerTest, MergesMayStandBeforeTheVocabulary) {
  const std::string json = OverlappingMerges();
  const size_t vocab = json.find("\"vocab\":{");
  const size_t merges = json.find(",\"merges\":");
  const std::string list = json.substr(merges + 1, json.size() - 2 - merges - 1);
  const std::string early =
      json.substr(0, vocab) + list + "," + json.substr(vocab, merges - vocab) + "}}";
  const std::string lines =
      Replaced(early, R"([["aa","aa"],["ab","a"],["a","b"],["a","a"],["aa","ab"]])",
               R"(["#version: 0.2","aa aa","ab a","a b","a a","aa ab"])");
  const auto expected = *Load(json)->Encode("aaabaaaaba", false);
  EXPECT_EQ(*Load(early)->Encode("aaabaaaaba", false), expected);
  EXPECT_EQ(*Load(lines)->Encode("aaabaaaaba", false), expected);
}

TEST(TokenizerTest, ThreadsShareOneTokenizer) {
  const auto tokenizer = Load(TinyByteLevelJson());
  const auto expected = *tokenizer->Encode("hello w hello", true);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        wrong[t] += *tokenizer->Encode("hello w hello", true) != expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

TEST(TokenizerTest, RefusesTextThatIsNotUtf8OrTooLong) {
  const auto tokenizer = Load(TinyByteLevelJson());
  const auto broken = tokenizer->Encode("ab\xFFz", false);
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("not UTF-8 at byte 2"));
  const auto at_limit = tokenizer->Encode(std::string(1 << 20, 'x'), false);
  EXPECT_EQ(at_limit->size(), size_t{1} << 20);
  const auto over = tokenizer->Encode(std::string(kMaxEncodeBytes + 1, 'x'), false);
  EXPECT_EQ(over.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(TokenizerTest, RefusesFilesThatItCannotServeAndSaysWhy) {
  const std::string good = TinyByteLevelJson();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "malformed"},
      {"{}", "model"},
      {good.substr(0, good.size() / 2), "malformed"},
      {std::string(100'000, '['), "malformed"},
      {Replaced(good, "\"type\":\"BPE\"", "\"type\":\"Unigram\""), "supported: BPE"},
      {Replaced(good, "\"dropout\":null", "\"dropout\":0.5"), "dropout"},
      {Replaced(good, "\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"#\""),
       "continuing_subword_prefix"},
      {Replaced(good, "\"he\":256", "\"he\":99999999999"), "malformed"},
      {Replaced(good, "\"he\":256", "\"he\":-1"), "malformed"},
      {Replaced(good, "h e\"", "h zz\""), "zz"},
      {Replaced(good, "\"h e\"", "\"h e l\""), "not two pieces"},
      {Replaced(good, "\"h e\"", "[\"h\",\"e\",\"l\"]"), "not a list of two pieces"},
      {Replaced(good, "\"h e\"", "[\"h\",\"e\"]"), "mixes strings and lists"},
      {Replaced(good, "\"h e\"", "7"), "malformed"},
      {Replaced(good, "\"merges\":", "\"vocab\":{},\"merges\":"), "duplicate field"},
      {Replaced(good, "\"merges\":", "\"more\":"), "needs vocab and merges"},
      {Replaced(good, "\"version\":\"1.0\"", "\"version\":\"2.0\""), "version '2.0'"},
      {Replaced(good, "\"normalizer\":null", "\"normalizer\":{\"type\":\"Precompiled\"}"),
       "normalizer type 'Precompiled'"},
      {Replaced(good, kByteLevelSplit, "\"pre_tokenizer\":{\"type\":\"X\""),
       "pre_tokenizer type 'X'"},
      {Replaced(good, "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"CTC\""),
       "decoder type 'CTC'"},
      {Replaced(good, "{\"Sequence\":{\"id\":\"A\"", "{\"SpecialToken\":{\"id\":\"<s>\""),
       "post_processor must keep the text"},
  };
  for (const auto& [json, why] : cases) {
    const auto tokenizer = Tokenizer::FromJson(json);
    ASSERT_FALSE(tokenizer.ok()) << why;
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(why));
    EXPECT_EQ(tokenizer.status().message().find('\n'), absl::string_view::npos);
  }
}

TEST(TokenizerTest, RefusesAVocabularyOverTheLimit) {
  const std::string good = TinyByteLevelJson();
  const auto far = Tokenizer::FromJson(Replaced(good, "\"he\":256", "\"he\":2000000"));
  EXPECT_EQ(far.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(far.status().message()), HasSubstr("2000000"));
  const auto near = Tokenizer::FromJson(Replaced(good, "\"he\":256", "\"he\":1999999"));
  EXPECT_TRUE(near.ok()) << near.status();
  const auto big = Tokenizer::FromJson(std::string(kMaxTokenizerJsonBytes + 1, ' '));
  EXPECT_EQ(big.status().code(), absl::StatusCode::kResourceExhausted);
}

// The tiny tokenizer with a splitting expression (as JSON spells it) before the byte letters.
std::string WithExpression(std::string_view regex) {
  const std::string json = Replaced(
      TinyByteLevelJson(), kByteLevelSplit,
      "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
      "{\"Regex\":\"" +
          std::string(regex) +
          "\"},\"behavior\":\"Isolated\",\"invert\":false},"
          "{\"type\":\"ByteLevel\"");
  return Replaced(json, "\"use_regex\":true},\"post", "\"use_regex\":true}]},\"post");
}

// Expressions whose matches each read the rest of the text, or take exponential time: with
// look-around (backtracking) and without (an automaton).
TEST(TokenizerTest, ExpensiveExpressionsEndInAnError) {
  for (const char* regex :
       {"(?=.*z)x|.", "(?=(a+)+b)x|.", "(?=(a|a)*b)x|.", ".*z|a", "(a|b)*z|a", "(.*)*\\\\1b|."}) {
    const auto tokenizer = Load(WithExpression(regex));
    EXPECT_TRUE(tokenizer->Encode(std::string(8, 'a'), false).ok()) << regex;
    const auto ids = tokenizer->Encode(std::string(1 << 20, 'a'), false);
    ASSERT_FALSE(ids.ok()) << regex;
    EXPECT_EQ(ids.status().code(), absl::StatusCode::kResourceExhausted) << regex;
    EXPECT_THAT(std::string(ids.status().message()), HasSubstr("pre_tokenizer Split")) << regex;
  }
  // The sum counts: a thousand lines are no cheaper than one.
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += std::string(1000, 'a') + "\n";
  EXPECT_FALSE(Load(WithExpression("(?=.*z)x|."))->Encode(lines, false).ok());
  EXPECT_FALSE(Tokenizer::FromJson(WithExpression("((\\\\p{L}{1000}){1000}){1000}")).ok());
  EXPECT_FALSE(Tokenizer::FromJson(WithExpression("(unclosed")).ok());
}

std::string WithNormalizers(std::string_view step, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + std::string(step);
  return Replaced(TinyByteLevelJson(), "\"normalizer\":null",
                  "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" + list + "]}");
}

constexpr std::string_view kDoubleA =
    R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";

// 31 doublings make 2 GiB of one letter.
TEST(TokenizerTest, NormalizersMayNotMultiplyAText) {
  const auto bytes_of = [](int doublings, const std::string& text) -> int64_t {
    const auto ids = Load(WithNormalizers(kDoubleA, doublings))->Encode(text, false);
    if (ids.ok()) return static_cast<int64_t>(ids->size());
    EXPECT_EQ(ids.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(ids.status().message()),
                HasSubstr("normalizer Replace makes the text longer by more than " +
                          std::to_string(kMaxGrowth) + " times"));
    return -1;
  };
  // One byte may grow by 32 + 4096, a thousand by 36,096.
  EXPECT_EQ(bytes_of(12, "a"), 4096);
  EXPECT_EQ(bytes_of(13, "a"), -1);
  EXPECT_EQ(bytes_of(31, "a"), -1);
  EXPECT_EQ(bytes_of(5, std::string(1000, 'a')), 32'000);
  EXPECT_EQ(bytes_of(6, std::string(1000, 'a')), -1);
  // The sum counts: a hundred pieces between tokens grow no more than one text of their size.
  std::string pieces;
  for (int i = 0; i < 100; ++i) pieces += "a<s>";
  EXPECT_EQ(bytes_of(12, pieces), -1);
}

TEST(TokenizerTest, AddedTokensMayNotMultiplyWhenTheFileIsRead) {
  const auto with = [](int doublings) {
    return Tokenizer::FromJson(
        Replaced(WithNormalizers(kDoubleA, doublings), "\"added_tokens\":[",
                 R"("added_tokens":[{"id":32,"content":"a","single_word":false,"lstrip":false,)"
                 R"("rstrip":false,"normalized":true,"special":false},)"));
  };
  EXPECT_TRUE(with(10).ok());
  const auto tokenizer = with(31);
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("normalizer Replace"));
}

TEST(TokenizerTest, DecodersMayNotMultiplyTokensWhenTheFileIsRead) {
  const auto with = [](int doublings) {
    std::string list;
    for (int i = 0; i < doublings; ++i) {
      list += R"({"type":"Replace","pattern":{"String":"h"},"content":"hh"},)";
    }
    return Tokenizer::FromJson(
        Replaced(TinySentencePieceJson(), "\"decoders\":[", "\"decoders\":[" + list));
  };
  // "▁h" takes three bytes more than the 2,048 or 4,096 letters.
  EXPECT_TRUE(with(11).ok());
  const auto tokenizer = with(12);
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("decoder Replace"));
}

// Each step spells every byte over 0x7F in two.
TEST(TokenizerTest, PreTokenizersMayNotMultiplyAText) {
  std::string steps;
  for (int i = 0; i < 30; ++i) {
    steps += R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
             R"("use_regex":false},)";
  }
  const std::string json = Replaced(TinyByteLevelJson(), kByteLevelSplit,
                                    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" +
                                        steps + "{\"type\":\"ByteLevel\"");
  const auto tokenizer =
      Load(Replaced(json, "\"use_regex\":true},\"post", "\"use_regex\":true}]},\"post"));
  EXPECT_TRUE(tokenizer->Encode("abc", false).ok());
  const auto ids = tokenizer->Encode("é", false);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("pre_tokenizer ByteLevel"));
}

std::string WithToken(std::string_view content, std::string_view flag) {
  return Replaced(
      TinyByteLevelJson(), "\"added_tokens\":[",
      "\"added_tokens\":[{\"id\":32,\"content\":\"" + std::string(content) +
          "\",\"single_word\":false,\"lstrip\":" + (flag == "lstrip" ? "true" : "false") +
          ",\"rstrip\":" + (flag == "rstrip" ? "true" : "false") +
          ",\"normalized\":false,\"special\":false},");
}

// A token that takes the spaces beside it must look at each of them once.
TEST(TokenizerTest, TokensThatStripSpacesCostLinearWork) {
  for (const std::string_view flag : {"lstrip", "rstrip"}) {
    const std::string json = WithToken(" ", flag);
    const auto tokenizer = Load(json);
    for (const std::string& text :
         {std::string(300, ' '), "a  b <s>   c " + std::string(40, ' ')}) {
      EXPECT_EQ(*tokenizer->Encode(text, false), *Tokenizer::EncodeByReference(json, text, false));
    }
    // Quadratic work on a megabyte would not end within this test's time.
    EXPECT_TRUE(tokenizer->Encode(std::string(1 << 20, ' '), false).ok());
  }
}

// The search for tokens starts again after each match, having read as far as the longest reaches.
TEST(TokenizerTest, TokensWithLongCommonStartsAreCharged) {
  const std::string json = WithToken("a", "");
  const auto with = [&](size_t length) {
    return Load(Replaced(json, "\"content\":\"</s>\"",
                         "\"content\":\"" + std::string(length, 'a') + "b\""));
  };
  EXPECT_TRUE(with(200)->Encode(std::string(100'000, 'a'), false).ok());
  const auto ids = with(4000)->Encode(std::string(100'000, 'a'), false);
  EXPECT_THAT(std::string(ids.status().message()),
              HasSubstr("added_tokens takes more than " + std::to_string(kMaxStepsPerByte)));
}

TEST(TokenizerTest, EndsWhenItsCallerGivesUp) {
  const auto tokenizer = Load(TinyByteLevelJson());
  std::atomic<bool> cancelled = false;
  const std::string text(1 << 20, 'x');
  EXPECT_TRUE(tokenizer->Encode(text, EncodeOptions{.cancelled = &cancelled}).ok());
  cancelled = true;
  const auto ids = tokenizer->Encode(text, EncodeOptions{.cancelled = &cancelled});
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kCancelled);
}

// Steps are counted, not timed. Tokenizers of models in use: real_tokenizers_test.cc.
TEST(TokenizerTest, LongTextsCostLinearWork) {
  for (const std::string& json : {TinyByteLevelJson(), TinySentencePieceJson()}) {
    const auto tokenizer = Load(json);
    for (const std::string_view unit : {"hello w ", " ", "a", "<s>", "\n \n", "好", "\xCC\x81"}) {
      const double small = static_cast<double>(StepsOf(*tokenizer, unit, 1 << 17));
      EXPECT_GE(small, 1 << 17) << "'" << unit << "'";
      EXPECT_LT(static_cast<double>(StepsOf(*tokenizer, unit, 1 << 20)), 8.1 * small)
          << "'" << unit << "'";
    }
  }
}

}  // namespace
}  // namespace quire::text
