#include "common/text/builtin_templates.h"

#include <gtest/gtest.h>

#include <string>

#include "common/json/json.h"
#include "common/text/chat_template.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::text {
namespace {

constexpr char kTemplateTalk[] =
    R"([{"role":"system","content":"S"},{"role":"user","content":"U"},)"
    R"({"role":"assistant","content":"A"},{"role":"user","content":"V"}])";

std::string RenderedBuiltin(const char* name) {
  const BuiltinTemplate* builtin = FindBuiltinTemplate(name);
  if (builtin == nullptr) return "absent";
  const auto compiled = ChatTemplate::Compile(builtin->source);
  if (!compiled.ok()) return std::string(compiled.status().message());
  RenderOptions options;
  options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const auto text = (*compiled)->Render(kTemplateTalk, "", options);
  return text.ok() ? *text : std::string(text.status().message());
}

TEST(BuiltinTemplates, WriteWhatTheirFamiliesWereTrainedWith) {
  EXPECT_EQ(RenderedBuiltin("chatml"),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
            "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(RenderedBuiltin("llama3"),
            "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(RenderedBuiltin("gemma"),
            "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
            "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(RenderedBuiltin("mistral"), "<s>[INST] S\n\nU [/INST] A</s>[INST] V [/INST]");
  EXPECT_EQ(RenderedBuiltin("zephyr"),
            "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n"
            "<|assistant|>\n");
  EXPECT_EQ(RenderedBuiltin("plain"),
            "System: S\n\nUser: U\n\nAssistant: A\n\nUser: V\n\nAssistant:");
}

// The prompts of the program that comes with the model (make_deepseek_goldens.py).
TEST(BuiltinTemplates, DeepSeekV32WritesWhatTheModelsOwnProgramWrites) {
  const auto compiled = ChatTemplate::Compile(FindBuiltinTemplate("deepseek_v32")->source);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto cases = json::Parse(ReadFile(FixturePath("chats_deepseek_v32.json")).value_or(""));
  ASSERT_TRUE(cases.ok() && cases->as_array().size() >= 80) << cases.status();
  for (const json::Value& item : cases->as_array()) {
    const auto field = [&item](const char* name) { return json::View(item.at(name).as_string()); };
    RenderOptions options;
    if (item.at("thinks").as_bool()) options.extra_json = R"({"thinking": true})";
    const auto text = (*compiled)->Render(field("messages"), field("tools"), options);
    if (item.at("text").is_null()) {
      EXPECT_FALSE(text.ok()) << field("messages") << "\n" << *text;
    } else {
      ASSERT_TRUE(text.ok()) << field("messages") << "\n" << text.status();
      EXPECT_EQ(*text, field("text")) << field("messages");
    }
  }
}

// What llama.cpp's template for the model writes, which renders as in transformers
// (reference_templates_test.cc).
TEST(BuiltinTemplates, DeepSeekV4WritesWhatOthersWrite) {
  const auto theirs =
      ReadFile(QUIRE_SOURCE_DIR "/.cache/chat-templates/deepseek-ai-DeepSeek-V4.jinja");
  if (!theirs) GTEST_SKIP() << "not fetched: tests/golden/text/fetch_templates.py";
  const auto expected = ChatTemplate::Compile(*theirs);
  const auto ours = ChatTemplate::Compile(FindBuiltinTemplate("deepseek_v4")->source);
  ASSERT_TRUE(expected.ok() && ours.ok()) << expected.status() << ours.status();
  int compared = 0;
  for (const char* file : {"chats_deepseek_v32.json", "chats.json"}) {
    const auto chats = json::Parse(ReadFile(FixturePath(file)).value_or(""));
    ASSERT_TRUE(chats.ok()) << chats.status();
    for (const json::Value& chat : chats->as_array()) {
      const auto field = [&chat](const char* name) {
        return json::View(chat.at(name).as_string());
      };
      for (const char* extra :
           {"", R"({"thinking":true})", R"({"enable_thinking":true,"reasoning_effort":"max"})"}) {
        RenderOptions options;
        options.special_tokens = {{"bos_token", "<｜begin▁of▁sentence｜>"}};
        options.extra_json = extra;
        options.add_generation_prompt = compared % 3 != 0;
        const auto want = (*expected)->Render(field("messages"), field("tools"), options);
        if (!want.ok()) continue;  // arguments in a string, contents in parts
        const auto text = (*ours)->Render(field("messages"), field("tools"), options);
        ASSERT_TRUE(text.ok()) << field("messages") << text.status();
        EXPECT_EQ(*text, *want) << field("messages");
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 400);
}

TEST(BuiltinTemplates, AreAllTestedHere) {
  EXPECT_EQ(BuiltinTemplateNames(),
            "chatml, llama3, gemma, mistral, zephyr, plain, deepseek_v32, deepseek_v4");
  EXPECT_EQ(FindBuiltinTemplate("chatmal"), nullptr);
}

}  // namespace
}  // namespace quire::text
