// How few tokens a text can have, known without tokenising it: no text has fewer, with tokenizers
// of models in use and with small ones, and a text that is much too long is found to be.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::text {
namespace {

// Characters that normalizers shrink or join, white space, a mark of SentencePiece, broken words.
constexpr std::string_view kHostile[] = {
    "\u212A",     "\u2126",     "\u1FEF", "\u037E", "\u0340", "\u0344", "\u1F82",
    "\u0390",     "\uAC01",     "\uFDFA", "\uFB01", "\u3000", "\u00A0", "\u2581",
    "\U0001F642", "\U0002F800", "\u0301", " ",      "  ",     "\n",     "\t",
    "a",          "e\u0301",    "<0x41>", "<unk>",  "\uFDD0"};

class Texts {
 public:
  explicit Texts(const Tokenizer& tokenizer) {
    for (int32_t id = 0; id < tokenizer.VocabSize(); ++id)
      pieces_.push_back(tokenizer.Decode(std::vector<int32_t>{id}, false));
    std::sort(pieces_.begin(), pieces_.end(),
              [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  }

  // The longest pieces again and again; any pieces; hostile characters; all of these mixed.
  std::string Next() {
    std::string text;
    const uint32_t kind = random_() % 4;
    for (uint32_t parts = 1 + random_() % 200; parts > 0; --parts) text += Part(kind);
    return text;
  }

  // Pieces, the longest first.
  const std::vector<std::string>& pieces() const { return pieces_; }

 private:
  std::string_view Part(uint32_t kind) {
    if (kind == 3) kind = random_() % 3;
    if (kind == 0) return pieces_[random_() % std::min<size_t>(pieces_.size(), 300)];
    if (kind == 1) return pieces_[random_() % pieces_.size()];
    return kHostile[random_() % std::size(kHostile)];
  }

  std::mt19937 random_{7};
  std::vector<std::string> pieces_;  // longest first
};

void ExpectSound(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text, false);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_LE(tokenizer.FewestTokens(text), ids->size()) << text;
}

void ExpectBound(const Tokenizer& tokenizer, size_t at_least) {
  Texts texts(tokenizer);
  for (int i = 0; i < 1500 && !testing::Test::HasFailure(); ++i)
    ExpectSound(tokenizer, texts.Next());
  for (size_t place = 0; place < std::min<size_t>(texts.pieces().size(), 300); ++place) {
    const std::string& piece = texts.pieces()[place];
    std::string run;
    for (size_t size = 0; size < 4000 && !piece.empty(); size += piece.size()) run += piece;
    ExpectSound(tokenizer, run);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(tokenizer.FewestTokens(std::string(1 << 20, 'x')), at_least) << "of 1 MiB of letters";
}

class RealTokenizerBoundTest : public testing::TestWithParam<const char*> {};

TEST_P(RealTokenizerBoundTest, NoTextHasFewerTokens) {
  const auto file = ReadFile(RealTokenizerDir(GetParam()) + "/tokenizer.json");
  if (!file) GTEST_SKIP() << "not fetched: tests/golden/text/fetch_tokenizers.sh";
  const auto tokenizer = Tokenizer::FromJson(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  // 128 spaces are their longest tokens, or 31 marks.
  ExpectBound(**tokenizer, 5000);
}

INSTANTIATE_TEST_SUITE_P(All, RealTokenizerBoundTest,
                         testing::Values("llama3", "qwen3", "gemma3", "gptoss", "deepseek_v3"));

TEST(TokenBound, NoTextHasFewerTokensOfSmallTokenizers) {
  for (const std::string& json : {TinyByteLevelJson(), TinySentencePieceJson()}) {
    const auto tokenizer = Tokenizer::FromJson(json);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    ExpectBound(**tokenizer, 50'000);
  }
}

TEST(TokenBound, MarksThatRenderingPutIntoATextDoNotCount) {
  const auto tokenizer = Tokenizer::FromJson(TinyByteLevelJson());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string marked;
  for (int i = 0; i < 1001; ++i) marked += "\uFDD0";
  const auto ids = (*tokenizer)->Encode(marked + "x", EncodeOptions{.marked = true});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->size(), 1u);
  EXPECT_EQ((*tokenizer)->FewestTokens(marked + "x", true), 1u);
  EXPECT_GT((*tokenizer)->FewestTokens(marked + "x"), 100u);
}

TEST(TokenBound, BytesThatAreNoTextHaveNone) {
  const auto tokenizer = Tokenizer::FromJson(TinyByteLevelJson());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->FewestTokens("\xFF\xFE"), 0u);
  EXPECT_EQ((*tokenizer)->FewestTokens(""), 0u);
}

}  // namespace
}  // namespace quire::text
