#include <cstring>
#include <map>

#include "common/text/gguf_vocab.h"
#include "common/text/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::text {
namespace {

class RealTokenizerTest : public testing::TestWithParam<const char*> {};

TEST_P(RealTokenizerTest, IdsAndTextEqualTheReferenceLibrary) {
  const auto file = ReadFile(RealTokenizerDir(GetParam()) + "/tokenizer.json");
  if (!file) GTEST_SKIP() << "not fetched: tests/golden/text/fetch_tokenizers.sh";
  const auto tokenizer = Tokenizer::FromJson(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ExpectReferenceIds(**tokenizer, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, RealTokenizerTest,
                         testing::Values("llama3", "qwen3", "gemma3", "gptoss", "deepseek_v3"));

class RealTokenizerWorkTest : public testing::TestWithParam<const char*> {};

// Ten times the text takes ten times the steps: prose and code of many languages, and runs that no
// expression cuts.
TEST_P(RealTokenizerWorkTest, TenMegabytesCostLinearWork) {
  const auto file = ReadFile(RealTokenizerDir(GetParam()) + "/tokenizer.json");
  if (!file) GTEST_SKIP() << "not fetched: tests/golden/text/fetch_tokenizers.sh";
  const auto tokenizer = Tokenizer::FromJson(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string prose;
  for (const std::string& text : ReferenceStrings()) {
    if (text.size() < 1000) prose += text + "\n";
  }
  for (const std::string_view unit :
       {std::string_view(prose), std::string_view("a"), std::string_view(" ")}) {
    constexpr size_t kMegabyte = 1'000'000;
    const double one = static_cast<double>(StepsOf(**tokenizer, unit, kMegabyte));
    const double ten = static_cast<double>(StepsOf(**tokenizer, unit, 10 * kMegabyte));
    const std::string which(unit.substr(0, 1));
    EXPECT_GE(one, kMegabyte) << which;
    EXPECT_LT(ten, 10.1 * one) << which;
    EXPECT_LT(ten, 64.0 * 10 * kMegabyte) << which;
  }
}

// One expression, word marks, several expressions.
INSTANTIATE_TEST_SUITE_P(All, RealTokenizerWorkTest,
                         testing::Values("llama3", "gemma3", "deepseek_v3"));

// Reads the tokenizer.* keys of a GGUF file, which here is a known good one.
class GgufKeys {
 public:
  explicit GgufKeys(std::string_view bytes) : rest_(bytes) {
    rest_.remove_prefix(4 + 4 + 8);  // magic, version, number of tensors
    for (auto count = Take<uint64_t>(); count > 0; --count) {
      const std::string key = TakeString();
      const auto type = Take<uint32_t>();
      TakeValue(key, type);
    }
  }

  GgufVocab vocab() const {
    GgufVocab vocab;
    vocab.model = strings_.at("tokenizer.ggml.model").at(0);
    vocab.pre = strings_.at("tokenizer.ggml.pre").at(0);
    vocab.tokens = strings_.at("tokenizer.ggml.tokens");
    for (const double score : numbers_.at("tokenizer.ggml.scores")) {
      vocab.scores.push_back(static_cast<float>(score));
    }
    for (const double type : numbers_.at("tokenizer.ggml.token_type")) {
      vocab.token_types.push_back(static_cast<int32_t>(type));
    }
    vocab.bos_id = static_cast<int32_t>(numbers_.at("tokenizer.ggml.bos_token_id").at(0));
    vocab.eos_id = static_cast<int32_t>(numbers_.at("tokenizer.ggml.eos_token_id").at(0));
    vocab.unknown_id = static_cast<int32_t>(numbers_.at("tokenizer.ggml.unknown_token_id").at(0));
    vocab.add_bos = numbers_.at("tokenizer.ggml.add_bos_token").at(0) != 0;
    vocab.add_eos = numbers_.at("tokenizer.ggml.add_eos_token").at(0) != 0;
    vocab.add_space_prefix = numbers_.at("tokenizer.ggml.add_space_prefix").at(0) != 0;
    return vocab;
  }

 private:
  template <typename T>
  T Take() {
    T value;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }

  std::string TakeString() {
    const auto size = Take<uint64_t>();
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }

  void TakeValue(const std::string& key, uint32_t type) {
    constexpr uint32_t kString = 8;
    constexpr uint32_t kArray = 9;
    if (type == kArray) {
      const auto item_type = Take<uint32_t>();
      for (auto count = Take<uint64_t>(); count > 0; --count) TakeValue(key, item_type);
    } else if (type == kString) {
      strings_[key].push_back(TakeString());
    } else {
      numbers_[key].push_back(TakeNumber(type));
    }
  }

  double TakeNumber(uint32_t type) {
    switch (type) {
      case 0:
      case 7:
        return Take<uint8_t>();
      case 1:
        return Take<int8_t>();
      case 2:
        return Take<uint16_t>();
      case 3:
        return Take<int16_t>();
      case 4:
        return Take<uint32_t>();
      case 5:
        return Take<int32_t>();
      case 6:
        return Take<float>();
      case 10:
        return static_cast<double>(Take<uint64_t>());
      case 11:
        return static_cast<double>(Take<int64_t>());
      default:
        return Take<double>();
    }
  }

  std::string_view rest_;
  std::map<std::string, std::vector<std::string>> strings_;
  std::map<std::string, std::vector<double>> numbers_;
};

TEST(GemmaGgufTest, IdsEqualThoseOfItsTokenizerJson) {
  // The metadata comes first; it has 8 MB.
  const auto file = ReadFile(QUIRE_SOURCE_DIR "/.cache/models/gemma3-270m/model.gguf", 32 << 20);
  if (!file) GTEST_SKIP() << "not fetched: ./dev model gemma3-270m";
  const auto json = GgufVocabToTokenizerJson(GgufKeys(*file).vocab());
  ASSERT_TRUE(json.ok()) << json.status();
  const auto tokenizer = Tokenizer::FromJson(*json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ExpectReferenceIds(**tokenizer, "gemma3");
}

}  // namespace
}  // namespace quire::text
