// Adapters: models compute with them what PEFT computes, in any company, on any instruction set and
// on two ranks; rows without one keep the bits of a model without any.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/golden/adapted_model.h"
#include "worker/runner/cpu_runner.h"

namespace quire::golden {
namespace {

// Of the largest logit of a row; the second with the gated delta rule, as without an adapter.
constexpr double kLogitTolerance = 1e-5;
constexpr double kDeltaTolerance = 1e-4;
void ExpectGolden(const std::vector<Row>& rows, const Golden& golden, double tolerance) {
  for (const GoldenRow& row : golden.rows) {
    const std::vector<float>& got = rows[static_cast<size_t>(row.position)].logits;
    ASSERT_EQ(got.size(), row.logits.size());
    double largest = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double difference = std::abs(static_cast<double>(got[i]) - row.logits[i]);
      largest = difference <= largest ? largest : difference;  // NaN wins too
      size = std::max(size, std::abs(static_cast<double>(row.logits[i])));
    }
    EXPECT_LE(largest, tolerance * size) << "at position " << row.position;
  }
  for (size_t i = static_cast<size_t>(golden.prompt_length); i < golden.tokens.size(); ++i) {
    ASSERT_EQ(rows[i - 1].token, golden.tokens[i]) << "at position " << i;
  }
}

std::function<std::unique_ptr<kernels::Backend>()> Cpu(const std::string& isa,
                                                       const std::string& activations = "float32") {
  return [isa, activations] {
    std::string error;
    return kernels::MakeCpuBackend({.threads = 2, .isa = isa, .activation_dtype = activations},
                                   error);
  };
}

class LoraTest : public testing::TestWithParam<std::string> {
 protected:
  LoraTest()
      : golden_(ReadGolden(AdapterFolder(GetParam()) + "/golden.json")),
        setup_(AdaptedModel::Of(BaseOf(GetParam()), {GetParam()})) {}
  void SetUp() override { ASSERT_TRUE(setup_.model != nullptr && setup_.adapters.size() == 1); }
  double Tolerance() const {
    const bool delta =
        setup_.model->config.recurrent.kind == load::RecurrentConfig::Kind::kGatedDelta;
    return delta ? kDeltaTolerance : kLogitTolerance;
  }

  const Golden golden_;
  AdaptedModel setup_;
};

TEST_P(LoraTest, ComputesWhatPeftDoesInAnyCompany) {
  std::vector<Row> first;
  for (const char* isa : {"reference", "auto"}) {
    SCOPED_TRACE(isa);
    const auto driver = setup_.Drive({.sequences = 3, .make_backend = Cpu(isa)});
    ASSERT_NE(driver, nullptr);
    const std::vector<Row> whole = Feed(*driver, golden_.tokens, {.adapter = 0});
    ExpectGolden(whole, golden_, Tolerance());
    if (first.empty()) first = whole;
    ExpectEqual(whole, first);
    for (const int chunk : {1, 7, 33}) {
      SCOPED_TRACE(chunk);
      const Feeding beside{.chunk = chunk, .adapter = 0, .other_adapter = 0, .beside = true};
      ExpectEqual(Feed(*driver, golden_.tokens, beside), first);
    }
  }
}

TEST_P(LoraTest, RowsWithoutOneKeepTheBitsOfTheModelAlone) {
  AdaptedModel plain = AdaptedModel::Of(BaseOf(GetParam()), {});
  const auto alone = plain.Drive({.sequences = 3, .make_backend = Cpu("auto")});
  const std::vector<Row> wanted = Feed(*alone, golden_.tokens, {});
  const auto driver = setup_.Drive({.sequences = 3, .make_backend = Cpu("auto")});
  ExpectEqual(Feed(*driver, golden_.tokens, {}), wanted);
  ExpectEqual(Feed(*driver, golden_.tokens, {.chunk = 5, .other_adapter = 0, .beside = true}),
              wanted);
}

TEST_P(LoraTest, TwoRanksComputeTheSame) {
  const auto driver = setup_.Drive({.ranks = 2, .sequences = 3});
  ASSERT_NE(driver, nullptr);
  const std::vector<Row> whole = Feed(*driver, golden_.tokens, {.adapter = 0});
  ExpectGolden(whole, golden_, std::max(Tolerance(), 2 * kLogitTolerance));
  ExpectEqual(
      Feed(*driver, golden_.tokens, {.chunk = 9, .adapter = 0, .other_adapter = 0, .beside = true}),
      whole);
  AdaptedModel plain = AdaptedModel::Of(BaseOf(GetParam()), {});
  const auto alone = plain.Drive({.ranks = 2, .sequences = 3});
  ExpectEqual(Feed(*driver, golden_.tokens, {.chunk = 9, .other_adapter = 0, .beside = true}),
              Feed(*alone, golden_.tokens, {}));
}

INSTANTIATE_TEST_SUITE_P(Adapters, LoraTest, testing::ValuesIn(AdapterFixtures()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// In the classes of int8 and bfloat16 too, a row's bits are its own.
class LoraOfClass : public testing::TestWithParam<const char*> {};

TEST_P(LoraOfClass, KeepsRowsApart) {
  const std::string activations = GetParam();
  if (Cpu("auto", activations)() == nullptr) {
    ASSERT_NE(activations, "int8") << "every host has this class";
    GTEST_SKIP() << "this processor has no instructions for " << activations;
  }
  for (const char* name : {"gguf-qwen2", "llama-all-linear"}) {
    SCOPED_TRACE(name);
    const Golden golden = ReadGolden(AdapterFolder(name) + "/golden.json");
    AdaptedModel setup = AdaptedModel::Of(BaseOf(name), {name});
    AdaptedModel plain = AdaptedModel::Of(BaseOf(name), {});
    const auto driver = setup.Drive({.sequences = 3, .make_backend = Cpu("auto", activations)});
    const auto alone = plain.Drive({.sequences = 3, .make_backend = Cpu("auto", activations)});
    ExpectEqual(Feed(*driver, golden.tokens, {.chunk = 6, .other_adapter = 0, .beside = true}),
                Feed(*alone, golden.tokens, {}));
    ExpectEqual(Feed(*driver, golden.tokens,
                     {.chunk = 6, .adapter = 0, .other_adapter = 0, .beside = true}),
                Feed(*driver, golden.tokens, {.adapter = 0}));
  }
}

INSTANTIATE_TEST_SUITE_P(Classes, LoraOfClass, testing::Values("int8", "bfloat16"),
                         [](const auto& info) { return std::string(info.param); });

// Two adapters of one model beside each other.
TEST(Lora, AdaptersDoNotMeet) {
  const std::string name = "llama-all-linear";
  AdaptedModel setup = AdaptedModel::Of(BaseOf(name), {name});
  AdaptedModel both = AdaptedModel::Of(BaseOf(name), {});
  for (const std::string& folder : {Louder(name), AdapterFolder(name)}) {
    auto adapter = PeftAdapter::Open(folder, {}, kAdapterRank);
    ASSERT_TRUE(adapter.ok()) << adapter.status();
    both.adapters.push_back(*std::move(adapter));
  }
  EXPECT_NE(both.adapters[0]->digest(), both.adapters[1]->digest());
  const Golden golden = ReadGolden(AdapterFolder(name) + "/golden.json");
  const auto one = setup.Drive({.sequences = 3});
  const auto two = both.Drive({.sequences = 3});
  const std::vector<Row> wanted = Feed(*one, golden.tokens, {.adapter = 0});
  EXPECT_NE(Feed(*two, golden.tokens, {.adapter = 0}).back().logits, wanted.back().logits)
      << "the other adapter computes something else";
  for (const int other : {-1, 0, 1}) {
    ExpectEqual(Feed(*two, golden.tokens,
                     {.chunk = 4, .adapter = 1, .other_adapter = other, .beside = true}),
                wanted);
  }
}

// From its birth on, through packets: two rows with one prompt, one with the adapter.
TEST(Lora, ARowHasTheAdapterOfItsBirth) {
  const std::string name = "llama-all-linear";
  const Golden golden = ReadGolden(AdapterFolder(name) + "/golden.json");
  AdaptedModel setup = AdaptedModel::Of(BaseOf(name), {name});
  const auto steps = setup.model->BuildRank({0, 1, true});
  ASSERT_TRUE(steps.ok() && setup.model->FillWeights().ok());
  const auto backend = Cpu("auto")();
  kernels::ProgramOptions load;
  load.kv = kernels::DealLayers(steps->layer_windows, backend->PageShape(*steps, 16));
  load.page_count = 16;
  load.max_loras = 2;
  load.max_lora_rank = kAdapterRank;
  const auto program = backend->Load(*steps, load);
  const auto own = setup.adapters.front()->For(steps->lora_targets);
  ASSERT_TRUE(own.ok()) << own.status();
  program->SetAdapter(1, program->PackAdapter(own->adapter));
  CpuRunnerOptions options;
  options.limits = {.max_rows = 2,
                    .max_tokens = 256,
                    .max_model_len = 128,
                    .page_count = 16,
                    .vocab_size = steps->vocab_size,
                    .max_loras = 2};
  options.now_us = [] { return int64_t{0}; };
  CpuRunner runner(*program, options);
  const int32_t prompt = golden.prompt_length;
  std::vector<std::vector<int32_t>> answers(2);
  for (int32_t step = 0; step < 24; ++step) {
    StepPlan plan;
    plan.number = static_cast<uint64_t>(step) + 1;
    for (int32_t row = 0; row < 2; ++row) {
      if (step == 0) {
        RowBirth birth;
        birth.row = row;
        birth.sequence = 1 + static_cast<uint64_t>(row);
        birth.prompt_length = prompt;
        birth.sampling.temperature = 0.0f;
        birth.sampling.max_tokens = 32;
        birth.adapter_slot = row == 0 ? -1 : 1;
        plan.born.push_back(birth);
        for (int32_t block = 0; block < 8; ++block) {
          plan.appends.push_back({row, 0, block, 8 * row + block});
        }
        plan.rows.push_back({row, 0, prompt, row * prompt, prompt, true});
        plan.tokens.insert(plan.tokens.end(), golden.tokens.begin(),
                           golden.tokens.begin() + prompt);
      } else {
        plan.rows.push_back({row, prompt + step - 1, 1, 0, 0, true});
      }
    }
    std::vector<std::byte> packet;
    EncodeStepPlan(plan, packet);
    ASSERT_TRUE(runner.TryLaunch(packet).ok());
    StepResult result;
    runner.Collect(result);
    for (const SampledToken& sample : result.samples) {
      answers[static_cast<size_t>(sample.row)].push_back(sample.token);
    }
  }
  const std::vector<int32_t> wanted(golden.tokens.begin() + prompt,
                                    golden.tokens.begin() + prompt + 24);
  EXPECT_EQ(answers[1], wanted);
  EXPECT_NE(answers[0], wanted);
}

// Every family has products that adapters may change, and no expert's is among them.
TEST(Lora, EveryFamilyTakesAdapters) {
  for (const std::string& name : Fixtures()) {
    SCOPED_TRACE(name);
    const std::string path = SourceFolder() + "/tests/golden/models/" + name;
    const bool gguf = std::filesystem::exists(path + "/model.gguf");
    const auto model = model::LoadModel(gguf ? path + "/model.gguf" : path,
                                        {.with_text = false, .rank = {0, 1, true}});
    ASSERT_TRUE(model.ok()) << model.status();
    const auto& targets = (*model)->program.lora_targets;
    EXPECT_GE(targets.size(), static_cast<size_t>((*model)->config.layers));
    for (const kernels::LoraTarget& target : targets) {
      EXPECT_FALSE(target.modules.empty());
      for (const std::string& module : target.modules) {
        EXPECT_EQ(module.find(".experts."), std::string::npos) << module;
      }
    }
  }
}

}  // namespace
}  // namespace quire::golden
