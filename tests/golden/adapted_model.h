// Models with adapters of tests/golden/adapters in their slots, and sequences through them, on any
// device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/json/json.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/rank_driver.h"
#include "worker/adapters/peft_adapter.h"

namespace quire::golden {

inline constexpr int kAdapterRank = 64;  // the largest of the fixtures'

inline std::string AdapterFolder(const std::string& name) {
  return SourceFolder() + "/tests/golden/adapters/" + name;
}

inline std::vector<std::string> AdapterFixtures() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(AdapterFolder(""), error)) {
    if (std::filesystem::exists(entry.path() / "golden.json")) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The model that an adapter's golden names.
inline std::string BaseOf(const std::string& name) {
  const auto value = json::Parse(ReadFile(AdapterFolder(name) + "/golden.json"));
  const std::string model(json::View(value->as_object().at("model").as_string()));
  const std::string path = SourceFolder() + "/tests/golden/models/" + model;
  return std::filesystem::exists(path + "/model.gguf") ? path + "/model.gguf" : path;
}

// A model, and adapters for it in slots 0, 1, …
struct AdaptedModel {
  std::unique_ptr<model::Model> model;
  std::vector<std::unique_ptr<PeftAdapter>> adapters;

  static AdaptedModel Of(const std::string& base, const std::vector<std::string>& names) {
    AdaptedModel setup;
    auto model = model::LoadModel(base, {.with_text = false});
    EXPECT_TRUE(model.ok()) << model.status();
    if (model.ok()) setup.model = *std::move(model);
    for (const std::string& name : names) {
      auto adapter = PeftAdapter::Open(AdapterFolder(name), {}, kAdapterRank);
      EXPECT_TRUE(adapter.ok()) << adapter.status();
      if (adapter.ok()) setup.adapters.push_back(*std::move(adapter));
    }
    return setup;
  }

  std::unique_ptr<RankDriver> Drive(RankDriver::Options options) {
    options.max_loras = static_cast<int>(adapters.size());
    options.max_lora_rank = adapters.empty() ? 0 : kAdapterRank;
    options.install = [this](const kernels::StepProgram& steps, kernels::LoadedProgram& program) {
      for (size_t slot = 0; slot < adapters.size(); ++slot) {
        const auto own = adapters[slot]->For(steps.lora_targets);
        ASSERT_TRUE(own.ok()) << own.status();
        program.SetAdapter(static_cast<int>(slot), program.PackAdapter(own->adapter));
      }
    };
    std::string error;
    std::unique_ptr<RankDriver> driver = RankDriver::Make(*model, options, error);
    EXPECT_NE(driver, nullptr) << error;
    return driver;
  }
};

// The tokens but the last in chunks, beside `other` in front of each where it is not empty.
struct Feeding {
  int chunk = 0;  // 0: all at once
  int adapter = -1;
  int other_adapter = -1;
  bool beside = false;
};
inline std::vector<Row> Feed(RankDriver& driver, const std::vector<int32_t>& tokens,
                             const Feeding& how) {
  const size_t count = tokens.size() - 1;
  const std::vector<int32_t> others(tokens.rbegin(), tokens.rend());
  std::vector<Row> rows;
  const size_t chunk = how.chunk == 0 ? count : static_cast<size_t>(how.chunk);
  for (size_t begin = 0; begin < count; begin += chunk) {
    const size_t size = std::min(chunk, count - begin);
    std::vector<RankDriver::Piece> pieces;
    const auto piece = [&](int sequence, const std::vector<int32_t>& of, int adapter) {
      pieces.push_back(
          {sequence, static_cast<int>(begin), std::span(of).subspan(begin, size), adapter});
    };
    if (how.beside) piece(1, others, how.other_adapter);
    piece(0, tokens, how.adapter);
    if (how.beside) piece(2, others, -1);
    const std::vector<Row> got = driver.Step(pieces);
    const auto first = got.begin() + (how.beside ? static_cast<int64_t>(size) : 0);
    rows.insert(rows.end(), first, first + static_cast<int64_t>(size));
  }
  return rows;
}

inline void ExpectEqual(const std::vector<Row>& got, const std::vector<Row>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].logits, wanted[i].logits) << "other bits at position " << i;
    ASSERT_EQ(got[i].token, wanted[i].token) << "at position " << i;
  }
}

// A copy of a fixture's folder whose alpha is another one: other weights for the same base.
inline std::string Louder(const std::string& name) {
  std::string folder = testing::TempDir() + "louder-" + name;
  std::filesystem::create_directories(folder);
  const std::string weights = "/adapter_model.safetensors";
  std::filesystem::copy_file(AdapterFolder(name) + weights, folder + weights,
                             std::filesystem::copy_options::overwrite_existing);
  std::string config = ReadFile(AdapterFolder(name) + "/adapter_config.json");
  const std::string alpha = "\"lora_alpha\": 16";
  const size_t at = config.find(alpha);
  EXPECT_NE(at, std::string::npos) << config;
  config.replace(at, alpha.size(), "\"lora_alpha\": 48");
  std::ofstream(folder + "/adapter_config.json") << config;
  return folder;
}

}  // namespace quire::golden
