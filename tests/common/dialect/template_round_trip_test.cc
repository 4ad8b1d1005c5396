// Random calls, written by the templates of real models, parse back to themselves.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "common/dialect/detect.h"
#include "common/dialect/parser.h"
#include "common/json/json.h"
#include "common/text/chat_template.h"
#include "tests/common/dialect/random_calls.h"
#include "tests/common/dialect/support.h"

namespace quire::dialect {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kTemplateRounds = 100;
#else
constexpr size_t kTemplateRounds = 10'000;
#endif

// What the templates of many families, as llama.cpp keeps them, write of an assistant's calls.
class TemplateCalls {
 public:
  static std::optional<TemplateCalls> Of(const std::filesystem::path& path) {
    std::ifstream file(path);
    const std::string source{std::istreambuf_iterator<char>(file),
                             std::istreambuf_iterator<char>()};
    TemplateCalls one;
    one.found = Detect(source, {});
    auto compiled = text::ChatTemplate::Compile(source);
    if (one.found.dialect == nullptr || !compiled.ok()) return std::nullopt;
    one.chat_template_ = *std::move(compiled);
    return one;
  }

  // The assistant's turn with these calls; an error where the template refuses them.
  absl::StatusOr<std::string> Write(const std::vector<Call>& calls) const {
    json::Array made;
    for (const Call& call : calls) {
      json::Object function{{"name", call.name}, {"arguments", ArgumentsOf(call)}};
      made.push_back(json::Object{{"id", "call0000" + std::to_string(made.size())},
                                  {"type", "function"},
                                  {"function", std::move(function)}});
    }
    json::Array messages{json::Object{{"role", "user"}, {"content", "Do it."}}};
    text::RenderOptions options;
    options.add_generation_prompt = false;
    options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    const std::string tools = ToolsOf(calls);
    auto before = chat_template_->Render(json::Serialize(messages), tools, options);
    if (!before.ok()) return before;
    messages.push_back(
        json::Object{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", std::move(made)}});
    auto whole = chat_template_->Render(json::Serialize(messages), tools, options);
    if (!whole.ok()) return whole;
    if (!whole->starts_with(*before)) return absl::InternalError("the question has changed");
    return whole->substr(before->size());
  }

  Detected found;

 private:
  std::unique_ptr<text::ChatTemplate> chat_template_;
};

// The templates that write calls.
struct Family {
  const char* name;
  size_t most_calls = 3;
  bool lists = true;  // as JSON; false: in Python's spelling, which nothing reads
  bool empty = true;  // nulls and empty lists are written
};
constexpr Family kFamilies[] = {
    {"Bielik-11B-v3.0-Instruct"},
    {"ByteDance-Seed-OSS", 3, false},
    {"Cohere2MoE"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use"},
    {"GLM-4.6"},
    {"GLM-4.7-Flash"},
    {"MiMo-VL"},
    {"MiniMax-M2"},
    {"MiniMax-M3", 3, true, false},
    {"Mistral-Small-3.2-24B-Instruct-2506"},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"},
    {"Qwen-QwQ-32B"},
    {"Qwen-Qwen2.5-7B-Instruct"},
    {"Qwen-Qwen3-0.6B"},
    {"Qwen3-Coder"},
    {"Qwen3.5-4B"},
    {"Reka-Edge"},
    {"StepFun3.5-Flash"},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"},
    {"deepseek-ai-DeepSeek-V3.1"},
    {"deepseek-ai-DeepSeek-V3.2"},
    {"deepseek-ai-DeepSeek-V4"},
    {"google-gemma-4-31B-it"},
    {"ibm-granite-granite-4.0"},
    {"meta-llama-Llama-3.1-8B-Instruct", 1},
    {"meta-llama-Llama-3.3-70B-Instruct", 1},
    {"mistralai-Ministral-3-14B-Reasoning-2512"},
    {"mistralai-Mistral-Nemo-Instruct-2407"},
    {"moonshotai-Kimi-K2"},
    {"openai-gpt-oss-120b", 1},
    {"unsloth-Apriel-1.5"},
    {"Apriel-1.6-15b-Thinker-fixed"},
};

TEST(DialectRoundTrip, CallsThatATemplateWritesParseBackToThemselves) {
  const std::string folder = QUIRE_SOURCE_DIR "/.cache/chat-templates/";
  if (!std::filesystem::exists(folder + "version")) {
    GTEST_SKIP() << "not fetched: tests/golden/text/fetch_templates.py";
  }
  std::map<std::string_view, size_t> done;  // of each dialect
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.name);
    const auto chat = TemplateCalls::Of(folder + family.name + ".jinja");
    ASSERT_TRUE(chat.has_value());
    Random random(7);
    const size_t rounds = done[chat->found.dialect->name]++ == 0 ? kTemplateRounds : 500;
    for (size_t round = 0; round < rounds; ++round) {
      std::vector<Call> calls;
      for (size_t n = 1 + random() % family.most_calls; n > 0; --n) {
        Call call = RandomCall(random);
        call.name += std::to_string(calls.size());
        if (!family.lists) {
          std::erase_if(call.arguments, [](const auto& argument) {
            return argument.second.is_array() || argument.second.is_object();
          });
        }
        calls.push_back(family.empty ? std::move(call) : Pruned(call));
      }
      const auto text = chat->Write(calls);
      ASSERT_TRUE(text.ok()) << text.status();
      ParserOptions options = OptionsOf(chat->found.dialect->name);
      options.types = std::make_shared<const ToolTypes>(TypesOf(calls));
      const Answer answer = ParseWhole(options, *text);
      ASSERT_EQ(answer.calls.size(), calls.size()) << *text;
      for (size_t i = 0; i < calls.size(); ++i) {
        ASSERT_EQ(answer.calls[i].name, calls[i].name) << *text;
        const auto arguments = json::Parse(answer.calls[i].arguments);
        ASSERT_TRUE(arguments.ok()) << answer.calls[i].arguments;
        ASSERT_EQ(Canonical(*arguments), Canonical(ArgumentsOf(calls[i]))) << *text;
      }
    }
  }
}

}  // namespace
}  // namespace quire::dialect
