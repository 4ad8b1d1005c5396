// Names in the flags of adapters: what is refused, with what would work.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/wire/worker_frames.h"
#include "worker/adapter_setup.h"

namespace quire {
namespace {

std::string NamesError(std::vector<std::string> args) {
  WorkerConfig config;
  config::Schema schema = MakeWorkerSchema(config);
  args.insert(args.end(), {"--model=/models/base", "--enable-lora"});
  const auto parsed = schema.Parse(args, {});
  if (!parsed.ok()) return StatusMessage(parsed.status());
  return StatusMessage(CheckWorkerConfig(config));
}

TEST(AdapterNames, AreNoModelsAndHaveNoColon) {
  const std::pair<std::vector<std::string>, const char*> bad[] = {
      {{"--lora-modules=a:b=/a"}, "has a ':', which parts a model from its adapter"},
      {{"--lora-modules=base=/a"}, "'base' is a name of the model"},
      {{"--lora-modules=x=/a", "--served-model-name=y", "--served-model-name=x"},
       "'x' is a name of the model; give the adapter another one"},
  };
  for (const auto& [args, needle] : bad) {
    EXPECT_NE(NamesError(args).find(needle), std::string::npos) << NamesError(args);
  }
  EXPECT_EQ(NamesError({"--lora-modules=base=/a", "--served-model-name=y"}), "");
}

TEST(AdapterNames, AreLimited) {
  std::vector<std::string> entries;
  for (int i = 0; i < kMaxServedAdapters; ++i) entries.push_back("a" + std::to_string(i) + "=/a");
  EXPECT_TRUE(ParseLoraModules(entries).ok());
  entries.emplace_back("another=/a");
  EXPECT_EQ(StatusMessage(ParseLoraModules(entries).status()),
            "--lora-modules: names 513 adapters; at most 512 are served");
}

}  // namespace
}  // namespace quire
