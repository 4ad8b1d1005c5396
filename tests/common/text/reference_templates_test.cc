#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "common/json/json.h"
#include "common/text/chat_template.h"
#include "common/text/text_bundle.h"
#include "common/text/tokenizer.h"
#include "gtest/gtest.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::text {
namespace {

json::Value ReadJson(const std::string& name) {
  auto value = json::Parse(ReadFile(FixturePath(name)).value_or(""));
  EXPECT_TRUE(value.ok()) << name << ": " << value.status();
  return value.ok() ? *value : json::Value(json::Object{});
}

std::string_view Text(const json::Value& object, const char* name) {
  return json::View(object.at(name).as_string());
}

// Expects that `text` is what the reference rendered, or an error where the template refuses. What
// Python cannot run (a list that is null, say) may work here, or be an error.
void ExpectSame(const absl::StatusOr<std::string>& text, const json::Value& expected,
                std::string_view what) {
  if (expected.is_bool()) return;
  if (expected.is_null()) {
    EXPECT_FALSE(text.ok()) << what << "\nrendered: " << *text;
    return;
  }
  ASSERT_TRUE(text.ok()) << what << "\n" << text.status();
  EXPECT_EQ(*text, json::View(expected.as_string())) << what;
}

TEST(ReferenceTemplatesTest, SmallTemplatesRenderAsInTransformers) {
  const json::Value file = ReadJson("templates.json");
  const json::Array& cases = file.at("cases").as_array();
  ASSERT_GE(cases.size(), 50u);
  for (const json::Value& item : cases) {
    const std::string_view source = Text(item, "source");
    const auto compiled = ChatTemplate::Compile(source);
    if (!compiled.ok()) {
      EXPECT_TRUE(item.at("text").is_null()) << source << "\n" << compiled.status();
      continue;
    }
    RenderOptions options;
    options.add_generation_prompt = false;
    ExpectSame((*compiled)->Render(Text(file, "messages"), Text(file, "tools"), options),
               item.at("text"), source);
  }
}

// The files of a real tokenizer, or nothing if they have not been fetched.
std::map<std::string, std::string> RealFiles(const std::string& name) {
  std::map<std::string, std::string> files;
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    const auto content = ReadFile(RealTokenizerDir(name) + "/" + file);
    if (!content) return {};
    files[file] = *content;
  }
  return files;
}

RenderOptions OptionsFor(const TextBundle& bundle) {
  RenderOptions options;
  for (const NamedToken& token : bundle.special_tokens) {
    options.special_tokens.emplace_back(token.name, token.text);
  }
  return options;
}

class RealTemplateTest : public testing::TestWithParam<const char*> {};

TEST_P(RealTemplateTest, ConversationsRenderAsInTransformers) {
  const auto files = RealFiles(GetParam());
  if (files.empty()) GTEST_SKIP() << "not fetched: tests/golden/text/fetch_tokenizers.sh";
  const auto bundle = TextBundleFromFiles(files);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  const std::string* source = bundle->ChatTemplateSource(/*with_tools=*/false);
  ASSERT_NE(source, nullptr);
  const auto compiled = ChatTemplate::Compile(*source);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const json::Value chats = ReadJson("chats.json");
  const json::Value expected = ReadJson(std::string("chats_") + GetParam() + ".json");
  ASSERT_EQ(chats.as_array().size(), expected.as_array().size());
  ASSERT_GE(chats.as_array().size(), 40u);
  for (size_t i = 0; i < chats.as_array().size(); ++i) {
    const json::Value& chat = chats.as_array()[i];
    RenderOptions options = OptionsFor(*bundle);
    options.add_generation_prompt = chat.at("add_generation_prompt").as_bool();
    options.continue_final_message = chat.at("continue_final_message").as_bool();
    options.extra_json = std::string(Text(chat, "extra"));
    ExpectSame((*compiled)->Render(Text(chat, "messages"), Text(chat, "tools"), options),
               expected.as_array()[i], Text(chat, "messages"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealTemplateTest,
                         testing::Values("llama3", "qwen3", "gemma3", "deepseek_v3"));

// Templates of many families, as llama.cpp keeps them. They are fetched; of the expected texts only
// hashes are kept.
constexpr int64_t kThen = 1772600767;  // 2026-03-04 05:06:07 UTC

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

TEST(FamilyTemplatesTest, ConversationsRenderAsInTransformers) {
  const std::string folder = QUIRE_SOURCE_DIR "/.cache/chat-templates";
  if (!std::filesystem::exists(folder + "/version")) {
    GTEST_SKIP() << "not fetched: tests/golden/text/fetch_templates.py";
  }
  const json::Value chats = ReadJson("chats.json");
  const json::Value families = ReadJson("families.json");
  ASSERT_GE(families.as_object().size(), 70u);
  for (const auto& [name, expected] : families.as_object()) {
    SCOPED_TRACE(std::string(std::string_view(name)));
    const auto source = ReadFile(folder + "/" + std::string(std::string_view(name)));
    ASSERT_TRUE(source.has_value());
    const auto compiled = ChatTemplate::Compile(*source);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_EQ(chats.as_array().size(), expected.as_array().size());
    for (size_t i = 0; i < chats.as_array().size(); ++i) {
      const json::Value& chat = chats.as_array()[i];
      RenderOptions options;
      options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
      options.now_unix_seconds = kThen;
      options.add_generation_prompt = chat.at("add_generation_prompt").as_bool();
      options.continue_final_message = chat.at("continue_final_message").as_bool();
      options.extra_json = std::string(Text(chat, "extra"));
      // Python escapes for HTML what this template joins to text that is `safe`.
      if (name == "meetkai-functionary-medium-v3.1.jinja" && !Text(chat, "tools").empty()) continue;
      const auto text = (*compiled)->Render(Text(chat, "messages"), Text(chat, "tools"), options);
      absl::StatusOr<std::string> hash = text;
      if (text.ok()) hash = Hex(Fnv1a(*text));
      ExpectSame(hash, expected.as_array()[i],
                 std::string(Text(chat, "messages")) + "\n" + text.value_or(""));
    }
  }
}

// An assistant that only calls tools says null. It is left out; where a template then fails, it is
// none, which some compare it with, or an empty text. Arguments of calls are a text where a
// template joins them to others.
TEST(ReferenceTemplatesTest, ATemplateThatFailsGetsOtherReadings) {
  const auto render = [](std::string_view line) {
    return (*ChatTemplate::Compile("{% for m in messages %}" + std::string(line) + "{% endfor %}"))
        ->Render(R"([{"role":"user","content":"u"},{"role":"assistant","content":null,"name":null,)"
                 R"("tool_calls":[{"function":{"name":"f","arguments":{"é":[1,null]}}}]}])",
                 "", RenderOptions());
  };
  EXPECT_EQ(*render("{{ m.content }};"), "u;;");
  EXPECT_EQ(*render("{{ m.content is none }}{{ m.name is defined }};"), "FalseFalse;FalseFalse;");
  const std::string guarded =
      "{% if m.content is none %}calls{% else %}{{ 'x' + m.content }}{% endif %};";
  EXPECT_EQ(*render(guarded), "xu;calls;");
  EXPECT_EQ(*render("{{ m.content.upper() }};"), "U;;");
  const std::string arguments =
      "{% for c in m.tool_calls %}{{ 'x' + c.function.arguments }}{% endfor %};";
  EXPECT_EQ(*render(arguments), ";x{\"é\": [1, null]};");
  EXPECT_EQ(*render(guarded + arguments), "xu;;calls;x{\"é\": [1, null]};");
  EXPECT_EQ(*render("{{ m.content.upper() }}" + arguments), "U;x{\"é\": [1, null]};");
  const auto refused = render("{{ 'x' + m.content }}{% if m.tool_calls %}{{ 1 + 'x' }}{% endif %}");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("string and undefined"), std::string::npos)
      << "the first error is told: " << refused.status();
}

// A completion gets the beginning-of-sequence tokens that the tokenizer adds; a rendered chat
// carries its own in the text and gets no others.
TEST(BeginningOfSequenceTest, CompletionsAndChatsHaveAsManyAsTheReference) {
  struct Case {
    const char* name;
    const char* bos;
    int in_completion;
    int in_chat;
  };
  int tested = 0;
  for (const Case& c :
       {Case{"llama3", "<|begin_of_text|>", 0, 1}, Case{"qwen3", "<|endoftext|>", 0, 0},
        Case{"gemma3", "<bos>", 1, 1}, Case{"gptoss", "<|startoftext|>", 0, -1},
        Case{"deepseek_v3", "<｜begin▁of▁sentence｜>", 0, 1}}) {
    const auto files = RealFiles(c.name);
    if (files.empty()) continue;
    ++tested;
    const auto bundle = TextBundleFromFiles(files);
    ASSERT_TRUE(bundle.ok()) << bundle.status();
    const auto tokenizer = *Tokenizer::FromJson(bundle->tokenizer_json);
    const int32_t bos = tokenizer->PieceToId(c.bos).value();
    const auto completion = *tokenizer->Encode("Once upon a time", true);
    EXPECT_EQ(std::count(completion.begin(), completion.end(), bos), c.in_completion) << c.name;
    const std::string* source = bundle->ChatTemplateSource(false);
    ASSERT_EQ(source == nullptr, c.in_chat < 0) << c.name;
    if (source == nullptr) continue;
    const auto compiled = *ChatTemplate::Compile(*source);
    const auto text =
        *compiled->Render(R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"},)"
                          R"({"role":"user","content":"Once upon a time"}])",
                          "", OptionsFor(*bundle));
    const auto chat = *tokenizer->Encode(text, false);
    EXPECT_EQ(std::count(chat.begin(), chat.end(), bos), c.in_chat) << c.name << ": " << text;
  }
  if (tested == 0) GTEST_SKIP() << "not fetched: tests/golden/text/fetch_tokenizers.sh";
}

}  // namespace
}  // namespace quire::text
