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

// Templates of many families, as llama.cpp keeps them.
TEST(DetectDialect, KnowsTheTemplatesOfManyFamilies) {
  struct Row {
    const char *family, *dialect, *thoughts;
  };
  constexpr Row kRows[] = {
      {"Apertus-8B-Instruct", "", ""},
      {"Apriel-1.6-15b-Thinker-fixed", "apriel", ""},
      {"Bielik-11B-v3.0-Instruct", "hermes", "qwen3"},
      {"ByteDance-Seed-OSS", "seed_oss", "seed_oss"},
      {"Cohere2MoE", "cohere", "cohere"},
      {"CohereForAI-c4ai-command-r-plus-tool_use", "", ""},
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere", "cohere"},
      {"GLM-4.6", "glm45", "think"},
      {"GLM-4.7-Flash", "glm45", "think"},
      {"GigaChat3-10B-A1.8B", "", ""},
      {"GigaChat3.1-10B-A1.8B", "", ""},
      {"HuggingFaceTB-SmolLM3-3B", "", "think"},
      {"Kimi-K2-Instruct", "kimi_k2", ""},
      {"Kimi-K2-Thinking", "kimi_k2", "think"},
      {"Kimi-K3", "", ""},
      {"LFM2-8B-A1B", "", ""},
      {"LFM2.5-8B-A1B", "", "think"},
      {"LFM2.5-Instruct", "", "think"},
      {"MiMo-VL", "hermes", ""},
      {"MiniMax-M1", "", ""},
      {"MiniMax-M2", "minimax_m2", "think"},
      {"MiniMax-M3", "minimax_m3", "minimax_m3"},
      {"Mistral-Small-3.2-24B-Instruct-2506", "mistral", ""},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_coder", "qwen3"},
      {"NVIDIA-Nemotron-Nano-v2", "", "think"},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", ""},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", ""},
      {"Qwen-QwQ-32B", "hermes", "qwen3"},
      {"Qwen-Qwen2.5-7B-Instruct", "hermes", ""},
      {"Qwen-Qwen3-0.6B", "hermes", "qwen3"},
      {"Qwen3-Coder", "qwen3_coder", ""},
      {"Qwen3.5-4B", "qwen3_coder", "qwen3"},
      {"Reka-Edge", "hermes", "qwen3"},
      {"Spark2.5", "glm45", "think"},
      {"StepFun3.5-Flash", "qwen3_coder", "qwen3"},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3", "think"},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3", "think"},
      {"deepseek-ai-DeepSeek-V3.1", "deepseek_v31", "think"},
      {"deepseek-ai-DeepSeek-V3.2", "deepseek_v32", "think"},
      {"deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek_v4", "think"},
      {"deepseek-ai-DeepSeek-V4", "deepseek_v4", "think"},
      {"fireworks-ai-llama-3-firefunction-v2", "", ""},
      {"google-gemma-2-2b-it", "", ""},
      {"google-gemma-4-31B-it-interleaved", "gemma4", "gemma4"},
      {"google-gemma-4-31B-it", "gemma4", "gemma4"},
      {"ibm-granite-granite-3.3-2B-Instruct", "granite", "think"},
      {"ibm-granite-granite-4.0", "hermes", ""},
      {"ibm-granite-granite-4.1", "hermes", ""},
      {"inclusionai-ling-3.0-flash", "glm45", "think"},
      {"llama-cpp-deepseek-r1", "deepseek_v3", "think"},
      {"llama-cpp-rwkv-world", "", "think"},
      {"meetkai-functionary-medium-v3.1", "", ""},
      {"meetkai-functionary-medium-v3.2", "", ""},
      {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json", ""},
      {"meta-llama-Llama-3.2-3B-Instruct", "llama3_json", ""},
      {"meta-llama-Llama-3.3-70B-Instruct", "llama3_json", ""},
      {"microsoft-Phi-3.5-mini-instruct", "", ""},
      {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral", "mistral"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "mistral", ""},
      {"moonshotai-Kimi-K2", "kimi_k2", ""},
      {"muse-glimmer", "", ""},
      {"openai-gpt-oss-120b", "openai", "openai"},
      {"openbmb-MiniCPM5-1B", "", "think"},
      {"poolside-Laguna-S-2.1", "glm45", "think"},
      {"poolside-Laguna-XS-2.1", "glm45", "think"},
      {"poolside-Laguna-XS.2", "glm45", "think"},
      {"tencent-Hy3", "", ""},
      {"unsloth-Apriel-1.5", "apriel", ""},
      {"unsloth-mistral-Devstral-Small-2507", "mistral", ""},
      {"upstage-Solar-Open-100B", "", ""},
  };
  const std::string folder = QUIRE_SOURCE_DIR "/.cache/chat-templates/";
  if (!std::ifstream(folder + "version")) {
    GTEST_SKIP() << "not fetched: tests/golden/text/fetch_templates.py";
  }
  for (const Row& row : kRows) {
    std::ifstream file(folder + row.family + ".jinja");
    const std::string source{std::istreambuf_iterator<char>(file),
                             std::istreambuf_iterator<char>()};
    ASSERT_FALSE(source.empty()) << row.family;
    const Detected found = Detect(source, {});
    EXPECT_EQ(NameOf(found), row.dialect) << row.family;
    EXPECT_EQ(ThoughtsOf(found), row.thoughts) << row.family;
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
