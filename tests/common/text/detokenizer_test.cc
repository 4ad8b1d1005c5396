#include "common/text/detokenizer.h"

#include <random>

#include "gtest/gtest.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::text {
namespace {

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t size = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    if ((byte >= 0x80 && byte < 0xC2) || byte > 0xF4 || i + size > text.size()) return false;
    for (size_t k = 1; k < size; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    }
    i += size;
  }
  return true;
}

// Deals `ids` to Append in random portions and returns what came out, checking every delta.
std::string Dealt(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip,
                  std::mt19937& random) {
  Detokenizer detokenizer(tokenizer, {.skip_special_tokens = skip});
  std::string text;
  while (!ids.empty()) {
    const size_t count = std::min<size_t>(ids.size(), random() % 4);
    const std::string delta = detokenizer.Append(ids.subspan(0, count));
    EXPECT_TRUE(IsUtf8(delta));
    text += delta;
    ids = ids.subspan(count);
  }
  const std::string rest = detokenizer.Flush();
  EXPECT_TRUE(IsUtf8(rest));
  EXPECT_EQ(detokenizer.Flush(), "");
  return text + rest;
}

std::vector<std::unique_ptr<Tokenizer>> Tokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(std::move(*Tokenizer::FromJson(TinyByteLevelJson())));
  tokenizers.push_back(std::move(*Tokenizer::FromJson(TinySentencePieceJson())));
  for (const char* name : {"qwen3", "gemma3"}) {
    const auto json = ReadFile(RealTokenizerDir(name) + "/tokenizer.json");
    if (json) tokenizers.push_back(std::move(*Tokenizer::FromJson(*json)));
  }
  return tokenizers;
}

TEST(DetokenizerTest, EverySplitOfRealTextGivesTheWholeDecode) {
  const std::vector<std::string> strings = ReferenceStrings();
  std::mt19937 random(7);
  for (const auto& tokenizer : Tokenizers()) {
    for (size_t i = 0; i < strings.size(); i += 7) {
      const auto ids = *tokenizer->Encode(strings[i], true);
      for (const bool skip : {false, true}) {
        ASSERT_EQ(Dealt(*tokenizer, ids, skip, random), tokenizer->Decode(ids, skip)) << strings[i];
      }
    }
  }
}

TEST(DetokenizerTest, EverySplitOfRandomIdsGivesTheWholeDecode) {
  std::mt19937 random(11);
  for (const auto& tokenizer : Tokenizers()) {
    for (int round = 0; round < 300; ++round) {
      std::vector<int32_t> ids(random() % 40);
      // Half of them from the first ids, where byte tokens and specials live in the small
      // vocabularies.
      for (int32_t& id : ids) {
        id = static_cast<int32_t>(random() % (random() % 2 ? tokenizer->VocabSize() : 280));
      }
      for (const bool skip : {false, true}) {
        const std::string whole = tokenizer->Decode(ids, skip);
        ASSERT_TRUE(IsUtf8(whole));
        ASSERT_EQ(Dealt(*tokenizer, ids, skip, random), whole);
      }
    }
  }
}

TEST(DetokenizerTest, HoldsBackAnOpenCharacter) {
  const auto tokenizer = std::move(*Tokenizer::FromJson(TinyByteLevelJson()));
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.Append(std::vector<int32_t>{0xF0}), "");
  EXPECT_EQ(detokenizer.Append(std::vector<int32_t>{0x9F, 0x98}), "");
  EXPECT_EQ(detokenizer.Append(std::vector<int32_t>{0x80, 'a'}), "😀a");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(DetokenizerTest, BrokenBytesBecomeReplacementsOnceFinal) {
  const auto byte_level = std::move(*Tokenizer::FromJson(TinyByteLevelJson()));
  Detokenizer one(*byte_level);
  EXPECT_EQ(one.Append(std::vector<int32_t>{0xE5, 0xA5}), "");
  EXPECT_EQ(one.Append(std::vector<int32_t>{'x'}), "\uFFFDx");  // one per broken sequence
  EXPECT_EQ(one.Append(std::vector<int32_t>{0xC0, 0xFF}), "\uFFFD\uFFFD");
  EXPECT_EQ(one.Append(std::vector<int32_t>{0xED, 0xA0}), "\uFFFD\uFFFD");  // half a surrogate
  EXPECT_EQ(one.Append(std::vector<int32_t>{0xE2}), "");
  EXPECT_EQ(one.Flush(), "\uFFFD");

  const auto byte_tokens = std::move(*Tokenizer::FromJson(TinySentencePieceJson()));
  Detokenizer each(*byte_tokens);
  EXPECT_EQ(each.Append(std::vector<int32_t>{3 + 0xE5, 3 + 0xA5}), "");
  EXPECT_EQ(each.Append(std::vector<int32_t>{260}),
            "\uFFFD\uFFFD"
            "a");  // one per byte
}

TEST(DetokenizerTest, TheLeadingSpaceIsStrippedOnceAtTheStart) {
  const auto tokenizer = std::move(*Tokenizer::FromJson(TinySentencePieceJson()));
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.Append(std::vector<int32_t>{1}), "");  // <s>, skipped: still the start
  EXPECT_EQ(detokenizer.Append(std::vector<int32_t>{265}), "hi");
  EXPECT_EQ(detokenizer.Append(std::vector<int32_t>{265}), " hi");
}

}  // namespace
}  // namespace quire::text
