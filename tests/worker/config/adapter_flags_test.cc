// The flags of adapters: what they may say, alone and together.
#include <gtest/gtest.h>

#include "worker/adapter_setup.h"

namespace quire {
namespace {

std::string AdapterFlagError(const std::vector<std::string>& args) {
  WorkerConfig config;
  config::Schema schema = MakeWorkerSchema(config);
  const auto parsed = schema.Parse(args, {});
  if (!parsed.ok()) return StatusMessage(parsed.status());
  return StatusMessage(CheckWorkerConfig(config));
}

TEST(AdapterFlags, NamesAndFoldersComeAsTextOrJson) {
  WorkerConfig config;
  config::Schema schema = MakeWorkerSchema(config);
  ASSERT_TRUE(
      schema
          .Parse({"--model=m", "--enable-lora", "--lora-modules=a=/x", "--lora-modules=b=/y=z",
                  R"(--lora-modules={"name": "c", "path": "/z", "base_model_name": "m"})"},
                 {})
          .ok());
  EXPECT_EQ(StatusMessage(CheckWorkerConfig(config)), "");
  const auto settings = ParseLoraModules(config.lora_modules);
  ASSERT_TRUE(settings.ok()) << settings.status();
  ASSERT_EQ(settings->size(), 3u);
  EXPECT_EQ((*settings)[1].name, "b");
  EXPECT_EQ((*settings)[1].path, "/y=z");
  EXPECT_EQ((*settings)[2].name, "c");
  EXPECT_EQ((*settings)[2].path, "/z");
  // The environment parts its list at commas, those of JSON too.
  const auto parted = ParseLoraModules({"a=/x", R"({"name": "c")", R"( "path": "/z"})", "b=/y"});
  ASSERT_TRUE(parted.ok()) << parted.status();
  ASSERT_EQ(parted->size(), 3u);
  EXPECT_EQ((*parted)[1].path, "/z");
  EXPECT_EQ(MaxLoras(config), 8);
  config.enable_lora = false;
  EXPECT_EQ(MaxLoras(config), 0);
}

TEST(AdapterFlags, WhatIsWrongIsNamed) {
  const std::string on = "--enable-lora";
  const struct {
    std::vector<std::string> args;
    const char* saying;
  } kWrong[] = {
      {{"--lora-modules=a=/x"}, "--lora-modules: goes with --enable-lora, which is missing"},
      {{on, "--lora-modules=a"}, "--lora-modules: 'a' has no =; give NAME=FOLDER"},
      {{on, "--lora-modules=a="}, "has no folder"},
      {{on, "--lora-modules==/x"}, "is empty; give NAME=FOLDER"},
      {{on, "--lora-modules=a b=/x"}, "has a space"},
      {{on, "--lora-modules=" + std::string(257, 'n') + "=/x"}, "has 257 bytes; at most 256"},
      {{on, "--lora-modules=a=/x", "--lora-modules=a=/y"}, "'a' is there twice"},
      {{on, R"(--lora-modules={"name": "a"})"}, R"(has no "path")"},
      {{on, R"(--lora-modules={"name": 1, "path": "/x"})"}, "name: must be"},
      {{on, "--max-loras=0"}, "--max-loras"},
      {{on, "--max-loras=4097"}, "--max-loras"},
      {{on, "--max-lora-rank=257"}, "--max-lora-rank"},
  };
  for (const auto& wrong : kWrong) {
    std::vector<std::string> args = wrong.args;
    args.push_back("--model=m");
    const std::string error = AdapterFlagError(args);
    EXPECT_NE(error.find(wrong.saying), std::string::npos) << error << " lacks " << wrong.saying;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_EQ(AdapterFlagError({"--model=m", on, "--max-loras=4096", "--max-lora-rank=256",
                              "--lora-modules=" + std::string(256, 'n') + "=/x"}),
            "");
}

}  // namespace
}  // namespace quire
