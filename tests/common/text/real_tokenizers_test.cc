#include <cstring>

#include "common/text/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::text {
namespace {

struct Expected {
  uint32_t count;
  uint64_t ids_hash;
  uint64_t text_hash;
};

std::vector<Expected> ReadExpected(const std::string& name) {
  const std::string file = ReadFile(FixturePath("ids_" + name + ".bin")).value_or("");
  constexpr size_t kRecord = 20;
  std::vector<Expected> expected(file.size() / kRecord);
  for (size_t i = 0; i < expected.size(); ++i) {
    std::memcpy(&expected[i].count, file.data() + i * kRecord, 4);
    std::memcpy(&expected[i].ids_hash, file.data() + i * kRecord + 4, 8);
    std::memcpy(&expected[i].text_hash, file.data() + i * kRecord + 12, 8);
  }
  return expected;
}

class RealTokenizerTest : public testing::TestWithParam<const char*> {};

TEST_P(RealTokenizerTest, IdsAndTextEqualTheReferenceLibrary) {
  const auto file = ReadFile(RealTokenizerDir(GetParam()) + "/tokenizer.json");
  if (!file) GTEST_SKIP() << "not fetched: tests/golden/text/fetch_tokenizers.sh";
  const auto tokenizer = Tokenizer::FromJson(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::vector<std::string> strings = ReferenceStrings();
  const std::vector<Expected> expected = ReadExpected(GetParam());
  ASSERT_EQ(strings.size(), expected.size());
  ASSERT_GE(strings.size(), 2000u);
  int wrong = 0;
  for (size_t i = 0; i < strings.size() && wrong < 20; ++i) {
    const auto ids = (*tokenizer)->Encode(strings[i], /*add_special_tokens=*/true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    if (ids->size() != expected[i].count || Fnv1a(*ids) != expected[i].ids_hash) {
      ++wrong;
      ADD_FAILURE() << "ids of string " << i << " '" << strings[i].substr(0, 200)
                    << "': " << ids->size() << " tokens, " << expected[i].count
                    << " in the reference: " << testing::PrintToString(*ids).substr(0, 300);
    }
    const std::string text = (*tokenizer)->Decode(*ids, /*skip_special_tokens=*/false);
    if (Fnv1a(text) != expected[i].text_hash) {
      ++wrong;
      ADD_FAILURE() << "decoded string " << i << " '" << strings[i].substr(0, 200) << "' to '"
                    << text.substr(0, 200) << "'";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealTokenizerTest,
                         testing::Values("llama3", "qwen3", "gemma3", "gptoss", "deepseek_v3"));

}  // namespace
}  // namespace quire::text
