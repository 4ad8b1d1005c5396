// Quantised weights on the emulated device: they stay so, with the bits of expanded ones, and what
// is expanded is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/backend/device_weights.h"
#include "kernels/cuda/backend/expand.h"
#include "tests/golden/driver.h"
#include "tests/golden/golden_file.h"
#include "tests/kernels/cuda/backend/emulated.h"
#include "tests/kernels/test_weights.h"
#include "worker/model/model.h"

namespace quire::golden {
namespace {

using kernels::DType;
using kernels::Weight;
using kernels::WeightForms;
using kernels::cuda::DeviceProgram;
using kernels::cuda::DeviceWeight;
using kernels::cuda::WeightRole;

std::unique_ptr<model::Model> Open(const std::string& name) {
  model::LoadOptions options;
  options.with_text = false;
  auto model = model::LoadModel(
      std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models/" + name + "/model.gguf", options);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

std::vector<Row> RunAll(const model::Model& model, std::span<const int32_t> tokens,
                        bool dequantize) {
  DriverOptions options;
  options.max_positions = 64;
  options.make_backend = MakeEmulatedBackend;
  options.dequantize_weights = dequantize;
  std::string error;
  const std::unique_ptr<Driver> driver = Driver::Make(model, options, error);
  EXPECT_NE(driver, nullptr) << error;
  std::vector<int32_t> wanted(tokens.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  return driver->Feed(tokens, wanted);
}

class CudaWeightsTest : public testing::TestWithParam<const char*> {};

TEST_P(CudaWeightsTest, QuantisedOnesHaveTheBitsOfExpandedOnes) {
  const std::unique_ptr<model::Model> model = Open(GetParam());
  ASSERT_NE(model, nullptr);
  const Golden golden = ReadGolden(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models/" +
                                   GetParam() + "/golden.json");
  for (const size_t count : {size_t{1}, size_t{19}}) {
    const std::span<const int32_t> tokens(golden.tokens.data(), count);
    const std::vector<Row> kept = RunAll(*model, tokens, false);
    const std::vector<Row> expanded = RunAll(*model, tokens, true);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(kept[i].logits, expanded[i].logits) << "position " << i << " of " << count;
      ASSERT_EQ(kept[i].token, expanded[i].token);
    }
  }
}

TEST_P(CudaWeightsTest, NoneIsExpandedUnlessAskedFor) {
  const std::unique_ptr<model::Model> model = Open(GetParam());
  ASSERT_NE(model, nullptr);
  const std::unique_ptr<kernels::Backend> backend = MakeEmulatedBackend();
  const WeightForms kept = backend->FormsOfWeights(model->program);
  EXPECT_GT(kept.quantised, 4);
  EXPECT_EQ(kept.expanded, 0) << kept.expanded_why;
  const int64_t bytes = backend->EstimateWeightBytes(model->program);
  kernels::StepProgram asked = model->program;
  asked.dequantize_weights = true;
  const WeightForms expanded = backend->FormsOfWeights(asked);
  EXPECT_EQ(expanded.quantised, 0);
  EXPECT_EQ(expanded.expanded, kept.quantised);
  EXPECT_NE(expanded.expanded_why.find("as was asked for"), std::string::npos);
  EXPECT_LT(bytes, backend->EstimateWeightBytes(asked));
}

INSTANTIATE_TEST_SUITE_P(Models, CudaWeightsTest,
                         testing::Values("gguf-llama-all-types", "gguf-qwen2", "gguf-qwen3",
                                         "gguf-gemma3", "gguf-gpt-oss", "gguf-qwen2moe"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

Weight Stack(kernels::test::WeightStore& store, const std::vector<std::pair<DType, int64_t>>& parts,
             int64_t cols) {
  Weight weight;
  weight.name = "stacked";
  weight.cols = cols;
  for (const auto& [type, rows] : parts) {
    weight.parts.push_back(store.Random(type, rows, cols, 1.0f));
    weight.rows += rows;
  }
  return weight;
}

constexpr WeightRole kMatrix{true, true, false, false};
constexpr WeightRole kTable{true, true, true, false};

TEST(CudaWeightParts, NeighboursOfOneFormAreOne) {
  kernels::test::WeightStore store(1);
  const Weight weight = Stack(store,
                              {{DType::kQ4_0, 24},
                               {DType::kQ4_0, 8},
                               {DType::kQ8_0, 16},
                               {DType::kF16, 8},
                               {DType::kF32, 11}},
                              64);
  const DeviceWeight planned = kernels::cuda::PlanWeight(weight, kMatrix);
  EXPECT_EQ(planned.rows, 72);
  ASSERT_EQ(planned.parts.size(), 3u);
  EXPECT_EQ(planned.parts[0].rows, 32);
  EXPECT_EQ(planned.parts[0].quantised.bits, 4);
  EXPECT_EQ(planned.parts[1].first_row, 32);
  EXPECT_EQ(planned.parts[1].quantised.bits, 8);
  EXPECT_EQ(planned.parts[2].first_row, 48);
  EXPECT_EQ(planned.parts[2].rows, 24) << "with padding";
  EXPECT_EQ(planned.parts[2].quantised.bits, 0);
}

TEST(CudaWeightParts, WhatMustBeExpandedIsToldWithWhy) {
  kernels::test::WeightStore store(2);
  kernels::StepProgram program;
  DeviceProgram lowered;
  const auto add = [&](Weight weight, const WeightRole& role) {
    program.weights.push_back(std::move(weight));
    lowered.weights.push_back(role);
    return kernels::cuda::PlanWeightForms(program, lowered);
  };
  WeightForms forms = add(Stack(store, {{DType::kF16, 8}}, 64), kMatrix);
  EXPECT_EQ(forms.quantised + forms.expanded, 0);
  forms = add(Stack(store, {{DType::kQ6_K, 8}, {DType::kQ4_K, 8}}, 256), kMatrix);
  EXPECT_EQ(forms.quantised, 1);
  EXPECT_EQ(forms.expanded, 0);
  forms = add(Stack(store, {{DType::kQ4_0, 12}, {DType::kQ8_0, 4}}, 64), kMatrix);
  EXPECT_EQ(forms.expanded, 1);
  EXPECT_EQ(forms.expanded_why, "stacked: a type of weights begins within eight rows");
  forms = add(Stack(store, {{DType::kQ4_0, 8}, {DType::kQ8_0, 8}}, 64), kTable);
  EXPECT_EQ(forms.expanded, 2);
  forms = add(Stack(store, {{DType::kQ4_0, 8}}, 64), WeightRole{});
  EXPECT_EQ(forms.quantised + forms.expanded, 3) << "no step reads it";
  const DeviceWeight planned = kernels::cuda::PlanWeight(program.weights[2], kMatrix);
  ASSERT_EQ(planned.parts.size(), 1u);
  EXPECT_EQ(planned.parts[0].quantised.bits, 0);
}

// A weight of several slabs and forms, whose sources end where no slab and no fragment does.
TEST(CudaWeightParts, AreWhatTheirSourcesAre) {
  kernels::test::WeightStore store(3);
  kernels::StepProgram program;
  program.weights.push_back(
      Stack(store, {{DType::kQ8_0, 3000}, {DType::kQ8_0, 2600}, {DType::kF32, 3}}, 2048));
  DeviceProgram lowered;
  lowered.weights = {kMatrix};
  kernels::cuda::emulate::EmulatedRuntime runtime(5, kernels::cuda::emulate::Checks::kNone);
  kernels::cuda::DeviceHeap heap(runtime);
  kernels::ProgramOptions options;
  int64_t released = 0;
  options.release_source = [&](const void*, int64_t bytes) { released += bytes; };
  kernels::cuda::DeviceWeights weights;
  ASSERT_EQ(weights.Load(program, lowered, options, runtime, heap), "");
  const Weight& weight = program.weights[0];
  int64_t all = 0;
  for (const kernels::WeightSource& source : weight.parts) all += source.Bytes();
  EXPECT_EQ(released, all);
  const DeviceWeight& loaded = weights.At(0);
  ASSERT_EQ(loaded.parts.size(), 2u);
  std::vector<std::byte> expected(loaded.parts[0].Bytes(2048));
  kernels::cuda::PackQuantised(weight.parts[0], 0, expected.data());
  kernels::cuda::PackQuantised(weight.parts[1], 3000, expected.data());
  EXPECT_EQ(memcmp(loaded.parts[0].quantised.data, expected.data(), expected.size()), 0);
  std::vector<uint16_t> floats(8 * 2048, 0);
  kernels::cuda::ExpandRows(weight.parts[2], 0, false, std::span(floats).first(3 * 2048));
  EXPECT_EQ(memcmp(loaded.parts[1].data, floats.data(), 2 * floats.size()), 0);
}

TEST(CudaWeightParts, CodesMeetRowsOfALimitedWidth) {
  kernels::test::WeightStore store(5);
  for (const int64_t cols : {int64_t{32768}, int64_t{32768 + 32}}) {
    Weight weight = Stack(store, {{DType::kG8, 8}}, cols);
    WeightRole role = kMatrix;
    EXPECT_EQ(kernels::cuda::WhyNotByCodes(weight, role), nullptr) << "it asks for none";
    weight.parts[0].rounding.code = kernels::ActivationRounding::Code::kInt8;
    const char* why = kernels::cuda::WhyNotByCodes(weight, role);
    if (cols == 32768) {
      EXPECT_EQ(why, nullptr);
    } else {
      EXPECT_STREQ(why, "more inputs than 32768");
    }
  }
}

// Codes by codes have no place for zeros, and narrow steps are found as weights are loaded.
TEST(CudaWeightParts, WhatLoadingFindsInBlocks) {
  kernels::test::WeightStore store(4);
  const auto load = [](const Weight& weight, bool by_codes, bool& narrow) {
    kernels::StepProgram program;
    program.weights.push_back(weight);
    DeviceProgram lowered;
    lowered.weights = {kMatrix};
    lowered.weights[0].by_codes = by_codes;
    kernels::cuda::emulate::EmulatedRuntime runtime(5, kernels::cuda::emulate::Checks::kNone);
    kernels::cuda::DeviceHeap heap(runtime);
    kernels::cuda::DeviceWeights weights;
    std::string error = weights.Load(program, lowered, {}, runtime, heap);
    narrow = error.empty() && weights.At(0).parts[0].quantised.narrow_steps;
    return error;
  };
  bool narrow = false;
  Weight zeros = Stack(store, {{DType::kG8, 16}}, 64);
  zeros.parts[0].rounding.code = kernels::ActivationRounding::Code::kInt8;
  const std::string error = load(zeros, true, narrow);
  EXPECT_NE(error.find("stacked: its codes have zeros"), std::string::npos) << error;
  EXPECT_EQ(load(zeros, false, narrow), "");
  const Weight weight = Stack(store, {{DType::kG4, 16}}, 64);
  ASSERT_EQ(load(weight, false, narrow), "");
  EXPECT_FALSE(narrow);
  auto* block = const_cast<std::byte*>(weight.parts[0].data);
  for (int64_t i = 0; i < weight.parts[0].Bytes(); i += kernels::BlockBytes(DType::kG4)) {
    std::memset(block + i, 0, 2);  // the lower half of the step
  }
  ASSERT_EQ(load(weight, false, narrow), "");
  EXPECT_TRUE(narrow);
}

// Checkpoints of other formats stay quantised, too, and compute what they must.
TEST(CudaQuantisedCheckpoints, StayQuantised) {
  for (const char* name :
       {"fp8-blocks", "gptq-4bit-g128-v1", "compressed-w8a8-int8",
        "compressed-w4a16-g32-asymmetric", "awq-g128", "compressed-mxfp4-experts"}) {
    SCOPED_TRACE(name);
    const std::string folder = std::string(QUIRE_SOURCE_DIR) + "/tests/golden/quantised/" + name;
    auto model = model::LoadModel(folder, {.with_text = false});
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_TRUE((*model)->FillWeights().ok());
    const WeightForms forms = MakeEmulatedBackend()->FormsOfWeights((*model)->program);
    // qkv, o, gate and up, down of two layers; or of one whose mixture has three experts.
    EXPECT_EQ(forms.quantised, 8);
    EXPECT_EQ(forms.expanded, 0) << forms.expanded_why;
    const Golden golden = ReadGolden(folder + "/golden.json");
    const GoldenRow& wanted = golden.rows.front();
    const std::span<const int32_t> prompt =
        std::span(golden.tokens).first(static_cast<size_t>(golden.prompt_length));
    const std::vector<Row> rows = RunAll(**model, prompt, false);
    double error = 0.0;
    for (size_t i = 0; i < wanted.logits.size(); ++i) {
      const double difference = std::abs(static_cast<double>(rows.back().logits[i]) -
                                         static_cast<double>(wanted.logits[i]));
      error = std::isnan(difference) ? HUGE_VAL : std::max(error, difference);
    }
    // The second rounding is that of every model on a GPU.
    EXPECT_LE(error, 2.0 * wanted.bfloat16_error);
  }
}

}  // namespace
}  // namespace quire::golden
