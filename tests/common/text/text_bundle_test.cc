#include "common/text/text_bundle.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::map<std::string, std::string> Files() {
  return {
      {"tokenizer.json", TinyByteLevelJson()},
      {"tokenizer_config.json",
       R"({"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>","pad_token":null,)"
       R"("add_bos_token":true,"extra_special_tokens":{"user":"<|user|>"},)"
       R"("model_max_length":1000000000000000019884624838656,)"
       R"("chat_template":[{"name":"default","template":"D"},)"
       R"({"name":"tool_use","template":"T"}]})"},
      {"special_tokens_map.json", R"({"pad_token":"<pad>","eos_token":"ignored"})"},
      {"generation_config.json",
       R"({"temperature":0.6,"top_p":0.95,"top_k":20,"do_sample":true,"eos_token_id":[263,262]})"},
      {"config.json", R"({"eos_token_id":5})"},
  };
}

TEST(TextBundleTest, IsMadeFromTheFilesOfAModel) {
  const auto bundle = TextBundleFromFiles(Files());
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_EQ(*bundle->ChatTemplateSource(false), "D");
  EXPECT_EQ(*bundle->ChatTemplateSource(true), "T");
  EXPECT_EQ(*bundle->FindSpecialToken("bos_token"), (NamedToken{"bos_token", "<s>", 261}));
  EXPECT_EQ(bundle->FindSpecialToken("eos_token")->id, 262);
  EXPECT_EQ(bundle->FindSpecialToken("pad_token")->text, "<pad>");
  EXPECT_EQ(bundle->FindSpecialToken("user")->id, 263);
  EXPECT_EQ(bundle->FindSpecialToken("unk_token"), nullptr);
  EXPECT_EQ(bundle->FindSpecialToken("add_bos_token"), nullptr);
  EXPECT_THAT(bundle->eos_token_ids, ElementsAre(262, 263));
  EXPECT_EQ(bundle->generation.temperature, 0.6);
  EXPECT_EQ(bundle->generation.top_k, 20);
  EXPECT_EQ(bundle->generation.do_sample, true);
  EXPECT_EQ(bundle->generation.min_p, std::nullopt);
  EXPECT_EQ(bundle->model_max_length, 0);
}

TEST(TextBundleTest, ATemplateFileGoesFirstAndTheConfigurationFillsIn) {
  auto files = Files();
  files["chat_template.jinja"] = "J";
  files.erase("generation_config.json");
  // As Nemotron-H is published: Python's word for a number without an end.
  files["config.json"] = R"({"time_step_limit":[0.0,Infinity],"text_config":{"eos_token_id":5}})";
  const auto bundle = TextBundleFromFiles(files);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_EQ(*bundle->ChatTemplateSource(true), "J");
  EXPECT_THAT(bundle->eos_token_ids, ElementsAre(5, 262));
  files["additional_chat_templates/tool_use.jinja"] = "U";
  EXPECT_EQ(*TextBundleFromFiles(files)->ChatTemplateSource(true), "U");
  EXPECT_EQ(*TextBundleFromFiles(files)->ChatTemplateSource(false), "J");
  const auto alone = TextBundleFromFiles({{"tokenizer.json", TinyByteLevelJson()}});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->ChatTemplateSource(false), nullptr);
}

TEST(TextBundleTest, BadFilesAreNamed) {
  const auto fails = [](std::string_view file, std::string_view content, std::string_view why) {
    auto files = Files();
    files[std::string(file)] = content;
    const auto bundle = TextBundleFromFiles(files);
    ASSERT_FALSE(bundle.ok()) << file;
    EXPECT_THAT(std::string(bundle.status().message()), HasSubstr(std::string(file)));
    EXPECT_THAT(std::string(bundle.status().message()), HasSubstr(std::string(why)));
  };
  fails("tokenizer.json", "{", "malformed");
  fails("tokenizer_config.json", "{\"a\":", "");
  fails("tokenizer_config.json", "[]", "object");
  fails("tokenizer_config.json", R"({"chat_template":5})", "chat_template");
  fails("tokenizer_config.json", R"({"chat_template":[{"name":"x"}]})", "template");
  fails("generation_config.json", R"({"temperature":"hot"})", "temperature");
  fails("config.json", std::string(1000, '['), "");
  EXPECT_THAT(std::string(TextBundleFromFiles({}).status().message()), HasSubstr("tokenizer.json"));
}

TEST(TextBundleTest, BytesAreDeterministicAndReadBackEqual) {
  const TextBundle bundle = *TextBundleFromFiles(Files());
  const std::string bytes = *SerializeTextBundle(bundle);
  EXPECT_EQ(bytes, *SerializeTextBundle(*TextBundleFromFiles(Files())));
  const auto read = ParseTextBundle(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, bundle);
  EXPECT_EQ(TextBundleDigest(bytes).size(), 64u);
  EXPECT_NE(TextBundleDigest(bytes), TextBundleDigest(bytes + " "));
  EXPECT_EQ(TextBundleDigest(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(TextBundleTest, NoByteMayBeCutOrChanged) {
  TextBundle bundle = *TextBundleFromFiles(Files());
  bundle.tokenizer_json = "{}";  // kept short: every position is tried
  const std::string bytes = *SerializeTextBundle(bundle);
  for (size_t size = 0; size + 2 < bytes.size(); ++size) {
    EXPECT_FALSE(ParseTextBundle(bytes.substr(0, size)).ok()) << size;
  }
  for (size_t at = 0; at + 2 < bytes.size(); ++at) {
    for (const char c : {'\0', ' ', '9', '"', '}', '\xFF'}) {
      std::string changed = bytes;
      if (changed[at] == c) continue;
      changed[at] = c;
      const auto read = ParseTextBundle(changed);
      if (read.ok()) {
        EXPECT_NE(*read, bundle);
      }
    }
  }
  EXPECT_FALSE(ParseTextBundle("quire text bundle 1\n99999999999\n{}").ok());
  EXPECT_FALSE(ParseTextBundle("quire text bundle 1\n2\n{}x").ok());
}

TEST(TextBundleTest, WrongValuesAreRefused) {
  const TextBundle good = *TextBundleFromFiles(Files());
  TextBundle bundle = good;
  bundle.eos_token_ids = {5, 5};
  EXPECT_FALSE(SerializeTextBundle(bundle).ok());
  bundle = good;
  bundle.chat_templates.push_back({"default", "again"});
  EXPECT_FALSE(SerializeTextBundle(bundle).ok());
  bundle = good;
  bundle.model_max_length = -1;
  EXPECT_FALSE(SerializeTextBundle(bundle).ok());
  bundle = good;
  bundle.tokenizer_json.assign(kMaxTextBundleBytes, ' ');
  EXPECT_EQ(SerializeTextBundle(bundle).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace quire::text
