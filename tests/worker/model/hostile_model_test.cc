// Model files with broken bytes: they load or are refused in one line, and nothing is read outside
// of them.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "common/status.h"
#include "tests/worker/load/file_maker.h"
#include "worker/model/model.h"

namespace quire::model {
namespace {

constexpr int kMutations = 150;

std::string Read(const std::string& name) {
  std::ifstream stream(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models/" + name,
                       std::ios::binary);
  EXPECT_TRUE(stream.good()) << name;
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

// Changes a few bytes among the first `head`, and sometimes cuts the end off.
std::string Mutate(std::string bytes, size_t head, std::mt19937& random) {
  const int changes = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < changes; ++i) {
    const size_t place = random() % std::min(head, bytes.size());
    switch (random() % 4) {
      case 0:
        bytes[place] = static_cast<char>(random());
        break;
      case 1:
        bytes[place] = static_cast<char>(bytes[place] ^ (1 << random() % 8));
        break;
      case 2:
        bytes[place] = "09-,[]{}\"\xff"[random() % 10];
        break;
      default:
        bytes[place] = bytes[random() % std::min(head, bytes.size())];
    }
  }
  if (random() % 8 == 0) bytes.resize(random() % bytes.size() + 1);
  return bytes;
}

// Loads, reads the ends of every weight, and says whether it loaded.
bool TryLoad(const std::string& path) {
  const auto model = LoadModel(path, {.with_text = false});
  if (!model.ok()) {
    EXPECT_FALSE(model.status().message().empty());
    return false;
  }
  volatile int sum = 0;  // so that the reads are not left out
  for (const kernels::Weight& weight : (*model)->program.weights) {
    for (const kernels::WeightSource& part : weight.parts) {
      sum = sum + static_cast<int>(part.data[0]) + static_cast<int>(part.data[part.Bytes() - 1]);
    }
  }
  return true;
}

TEST(HostileModel, GgufWithBrokenBytes) {
  std::mt19937 random(1);
  for (const char* name : {"gguf-qwen2/model.gguf", "gguf-qwen3/model.gguf"}) {
    const std::string good = Read(name);
    const load::TempFolder folder;
    ASSERT_TRUE(TryLoad(folder.Write("m.gguf", good)));
    int refused = 0;
    for (int i = 0; i < kMutations; ++i) {
      if (!TryLoad(folder.Write("m.gguf", Mutate(good, 2'500, random)))) ++refused;
    }
    EXPECT_GT(refused, kMutations / 4);
  }
}

TEST(HostileModel, CheckpointWithBrokenBytes) {
  std::mt19937 random(2);
  const load::TempFolder folder;
  const std::string config = Read("qwen2-tied-window/config.json");
  const std::string weights = Read("qwen2-tied-window/model.safetensors");
  folder.Write("config.json", config);
  folder.Write("model.safetensors", weights);
  ASSERT_TRUE(TryLoad(folder.path()));
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    const bool in_config = i % 2 == 0;
    folder.Write("config.json", in_config ? Mutate(config, config.size(), random) : config);
    folder.Write("model.safetensors", in_config ? weights : Mutate(weights, 2'000, random));
    if (!TryLoad(folder.path())) ++refused;
  }
  EXPECT_GT(refused, kMutations / 4);
}

}  // namespace
}  // namespace quire::model
