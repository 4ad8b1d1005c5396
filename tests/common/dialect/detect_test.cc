// The dialect of a model, by its template, its tokens and the prompt's end.
#include "common/dialect/detect.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "common/json/json.h"

namespace quire::dialect {
namespace {

std::string_view NameOf(const Detected& found) {
  return found.dialect == nullptr ? "" : found.dialect->name;
}
std::string_view ThoughtsOf(const Detected& found) {
  return found.thoughts == nullptr ? "" : found.thoughts->name;
}

std::string ReadOf(const std::string& package, const std::string& file) {
  std::ifstream in(QUIRE_SOURCE_DIR "/.cache/npm-tokenizers/" + package + "/" + file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(DetectDialect, KnowsTheRealTemplatesAtHand) {
  struct Row {
    const char *package, *dialect, *thoughts;
  };
  constexpr Row kRows[] = {{"llama3", "", ""},
                           {"qwen3", "hermes", "qwen3"},
                           {"gemma3", "", ""},
                           {"gptoss", "openai", "openai"},
                           {"deepseek_v3", "deepseek_v3", ""}};
  for (const Row& row : kRows) {
    const std::string config = ReadOf(row.package, "tokenizer_config.json");
    if (config.empty()) GTEST_SKIP() << "not fetched: tests/golden/text/fetch_tokenizers.sh";
    const auto parsed = json::Parse(config);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const json::Value* source = json::Find(parsed->get_object(), "chat_template");
    const std::string text(source == nullptr ? "" : json::View(source->get_string()));
    const auto tokenizer = json::Parse(ReadOf(row.package, "tokenizer.json"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    std::vector<std::string_view> tokens;
    for (const json::Value& token : tokenizer->at("added_tokens").get_array()) {
      tokens.push_back(json::View(token.at("content").get_string()));
    }
    const Detected found = Detect(text, tokens);
    EXPECT_EQ(NameOf(found), row.dialect) << row.package;
    EXPECT_EQ(ThoughtsOf(found), row.thoughts) << row.package;
  }
}

// What no other dialect's call shows: an example written into a template.
TEST(DetectDialect, KnowsEachDialectByItsOwnSigns) {
  for (const Dialect* dialect : Dialects()) {
    std::string source;
    for (const std::string_view sign : dialect->signs) source += std::string(sign) + "\n";
    EXPECT_EQ(NameOf(Detect(source, {})), dialect->name);
  }
  EXPECT_EQ(NameOf(Detect("{{ messages }} ```json", {})), "");
}

TEST(DetectDialect, TokensCountWithoutATemplateAlone) {
  const std::vector<std::string_view> tokens = {"<s>", "[TOOL_CALLS]", "[THINK]", "[/THINK]"};
  EXPECT_EQ(NameOf(Detect("", tokens)), "mistral");
  EXPECT_EQ(ThoughtsOf(Detect("", tokens)), "mistral");
  EXPECT_EQ(NameOf(Detect("{{ messages }}", tokens)), "");
}

TEST(DetectDialect, ThoughtsWithoutCallsAreFound) {
  EXPECT_EQ(ThoughtsOf(Detect("{{ content.split('</think>')[-1] }}", {})), "think");
}

TEST(DetectDialect, APromptThatEndsInAThoughtIsSeen) {
  const Thoughts& think = *FindThoughts("think");
  EXPECT_TRUE(EndsInThought(think, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(EndsInThought(think, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(EndsInThought(think, "What does <think> mean?<|im_start|>assistant\n"));
  EXPECT_TRUE(EndsInThought(*FindThoughts("gemma4"), "<|turn>model\n<|channel>thought\n"));
}

}  // namespace
}  // namespace quire::dialect
