// Checkpoints that ask for rounded activations, on the device: logits move as far as the
// CPU's class moves them, to the same place, and the rows of a step change no bit of each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tests/golden/driver.h"
#include "tests/golden/golden_file.h"
#include "tests/kernels/cuda/backend/device.h"
#include "worker/model/model.h"

namespace quire::golden {
namespace {

using Logits = std::vector<std::vector<float>>;  // by position

std::unique_ptr<model::Model> Load(const std::string& name) {
  auto model =
      model::LoadModel(SourceFolder() + "/tests/golden/quantised/" + name, {.with_text = false});
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok() || !(*model)->FillWeights().ok()) return nullptr;
  return *std::move(model);
}

// At most `step` tokens at a time.
Logits LogitsOf(const model::Model& model, DriverOptions options, size_t step) {
  constexpr size_t kTokens = 48;
  options.max_positions = 64;
  std::string error;
  const std::unique_ptr<Driver> driver = Driver::Make(model, options, error);
  EXPECT_NE(driver, nullptr) << error;
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < kTokens; ++i) tokens.push_back(static_cast<int32_t>(i * 37 % 251));
  Logits logits;
  for (size_t begin = 0; driver != nullptr && begin < kTokens; begin += step) {
    std::vector<int32_t> wanted(std::min(step, kTokens - begin));
    std::iota(wanted.begin(), wanted.end(), 0);
    for (Row& row : driver->Feed(std::span(tokens).subspan(begin, wanted.size()), wanted)) {
      logits.push_back(std::move(row.logits));
    }
  }
  return logits;
}

// The median of ‖a − b‖ / ‖b‖.
double Distance(const Logits& a, const Logits& b) {
  std::vector<double> distances;
  for (size_t row = 0; row < b.size(); ++row) {
    double difference = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < b[row].size(); ++i) {
      difference += std::pow(static_cast<double>(a[row][i]) - b[row][i], 2);
      size += std::pow(static_cast<double>(b[row][i]), 2);
    }
    distances.push_back(std::sqrt(difference / size));
  }
  std::ranges::sort(distances);
  return distances[distances.size() / 2];
}

class CudaRounded : public testing::TestWithParam<const char*> {};

TEST_P(CudaRounded, LogitsMoveAsOnACpu) {
  const std::unique_ptr<model::Model> model = Load(GetParam());
  ASSERT_NE(model, nullptr);
  const Logits plain = LogitsOf(*model, {}, 48);
  const Logits on_cpu = LogitsOf(*model, {.activation_dtype = "w8a8"}, 48);
  const DriverOptions on_device = {.round_activations = true, .make_backend = MakeDeviceBackend};
  const Logits rounded = LogitsOf(*model, on_device, 48);
  ASSERT_EQ(rounded.size(), plain.size());
  const double moved = Distance(on_cpu, plain);
  EXPECT_LE(Distance(rounded, plain), 1.15 * moved);
  EXPECT_GE(Distance(rounded, plain), moved / 1.15);
  // Rows of 16 bits meet other codes where a value lies between two: often, of int8.
  EXPECT_LE(Distance(rounded, on_cpu), 1.3 * moved);
  for (const size_t step : {size_t{1}, size_t{7}}) {
    EXPECT_EQ(LogitsOf(*model, on_device, step), rounded) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, CudaRounded,
                         testing::Values("compressed-w8a8-int8", "fp8-blocks", "fp8-static"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(CudaRoundedPrograms, TheClassHasANameAndBytesOfItsOwn) {
  const std::unique_ptr<model::Model> model = Load("compressed-w8a8-int8");
  ASSERT_NE(model, nullptr);
  const std::unique_ptr<kernels::Backend> backend = MakeDeviceBackend();
  const std::string plain = backend->NumericsClass(model->program);
  const int64_t bytes = backend->EstimateWeightBytes(model->program);
  EXPECT_EQ(backend->RoundedActivations(model->program), "");
  kernels::StepProgram asked = model->program;
  asked.round_activations = true;
  EXPECT_NE(backend->NumericsClass(asked), plain);
  EXPECT_EQ(backend->RoundedActivations(asked), "int8 per token");
  EXPECT_LT(backend->EstimateWeightBytes(asked), bytes);
}

TEST(CudaRoundedPrograms, WhatHasNoKernelIsRefusedByName) {
  const std::unique_ptr<kernels::Backend> backend = MakeDeviceBackend();
  kernels::ProgramOptions options;
  options.kv.type = kernels::KvType::kBF16;
  // What is said of a program whose parts of weights `change` has changed.
  const auto refusal = [&](const std::string& name, const auto& change) {
    const std::unique_ptr<model::Model> model = Load(name);
    if (model == nullptr) return std::string();
    kernels::StepProgram program = model->program;
    program.round_activations = true;
    for (auto& weight : program.weights) {
      for (auto& part : weight.parts) change(part, program);
    }
    return backend->Refusal(program, options);
  };
  using Part = kernels::WeightSource;
  using Program = kernels::StepProgram;
  const auto has = [](const std::string& text, const std::string& what) {
    return text.find(what) != std::string::npos;
  };
  EXPECT_PRED2(has, refusal("gptq-4bit-g64-sym", [](Part&, Program&) {}), "this one asks for none");
  EXPECT_PRED2(has,
               refusal("compressed-w8a8-int8",
                       [](Part&, Program& program) { program.dequantize_weights = true; }),
               "leave --dequantize-weights out");
  EXPECT_PRED2(has,
               refusal("compressed-w8a8-int8",
                       [](Part& part, Program&) { part.rounding.symmetric = false; }),
               "no kernel on this device (codes with a zero); use");
  EXPECT_PRED2(has,
               refusal("fp8-blocks", [](Part& part, Program&) { part.rounding.weight_group = 64; }),
               "(fp8 scales of other groups than 128");
  EXPECT_PRED2(has,
               refusal("fp8-blocks", [](Part& part, Program&) { part.rounding.unserved = "dice"; }),
               "(dice)");
}

// Where a matrix has no quantised form, 16-bit products are no substitute: the class's name would
// be wrong.
TEST(CudaRoundedPrograms, WhatWouldBeExpandedIsRefused) {
  const std::unique_ptr<model::Model> model = Load("fp8-blocks");
  ASSERT_NE(model, nullptr);
  kernels::StepProgram program = model->program;
  program.round_activations = true;
  for (auto& weight : program.weights) {
    if (weight.parts.size() < 2) continue;
    weight.parts[0].rows -= 4;
    weight.parts[1].rows += 4;
    weight.parts[1].rounding.scale = 0.5f;
  }
  kernels::ProgramOptions options;
  options.kv.type = kernels::KvType::kBF16;
  const std::string refusal = MakeDeviceBackend()->Refusal(program, options);
  EXPECT_NE(refusal.find("(a type of weights begins within eight rows)"), std::string::npos)
      << refusal;
}

}  // namespace
}  // namespace quire::golden
