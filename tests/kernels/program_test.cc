// Whole step programs against the float64 interpreter, and bit for bit against themselves in every
// other batch, chunking, thread count and instruction set.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_isa.h"
#include "tests/kernels/double_model.h"
#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

Logits Prefill(const StepProgram& program, PagedRunner::Options options,
               const std::vector<int32_t>& tokens) {
  PagedRunner runner(program, options);
  return runner.Step({{0, 0, tokens}});
}

ModelShape ShapeOf(DType type) {
  ModelShape shape;
  shape.type = type;
  shape.second_type = type;
  return shape;
}

class EveryType : public ::testing::TestWithParam<DType> {};

TEST_P(EveryType, LogitsAgreeWithFloat64) {
  WeightStore store(1);
  const StepProgram program = MakeProgram(ShapeOf(GetParam()), store);
  const std::vector<int32_t> tokens = RandomTokens(20, 90, 2);
  const auto wanted = DoubleModel(program).Run(tokens);
  Logits first;
  for (const std::string& isa : AvailableIsas()) {
    const Logits got = Prefill(program, {.cpu = {.threads = 2, .isa = isa}}, tokens);
    EXPECT_LT(WorstError(got, wanted), 1e-5) << isa;
    if (first.empty()) first = got;
    EXPECT_EQ(got, first) << isa << " has other bits than the reference";
  }
}

INSTANTIATE_TEST_SUITE_P(Program, EveryType, ::testing::ValuesIn(kAllTypes),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// The bfloat16 class: near float64, and the same bits for any pieces and threads.
TEST(Program, BFloat16Activations) {
  if (!cpu::HostHas(cpu::Isa::kAvx512Bf16)) {
    GTEST_SKIP() << "this host has no AVX-512 BF16: its kernels were not tested";
  }
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
    WeightStore store(11);
    const StepProgram program = MakeProgram(ShapeOf(type), store);
    const std::vector<int32_t> tokens = RandomTokens(70, 90, 12);
    const CpuOptions cpu{.threads = 2, .activation_dtype = "bfloat16"};
    const Logits whole = Prefill(program, {.cpu = cpu}, tokens);
    EXPECT_LT(WorstError(whole, DoubleModel(program).Run(tokens)), 3e-2) << DTypeName(type);
    PagedRunner runner(program, {.cpu = {.threads = 1, .activation_dtype = "bfloat16"}});
    Logits pieces;
    for (int begin = 0; begin < 70;) {
      const int end = std::min(70, begin + 1 + begin % 20);
      const Logits part = runner.Step({{0, begin, {tokens.begin() + begin, tokens.begin() + end}}});
      pieces.insert(pieces.end(), part.begin(), part.end());
      begin = end;
    }
    EXPECT_EQ(pieces, whole) << DTypeName(type);
    EXPECT_NE(runner.backend().NumericsClass(program).find("bfloat16"), std::string::npos);
  }
}

// The int8 class: near float64, and the same bits for any pieces, threads and instruction sets.
TEST(Program, Int8Activations) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K, DType::kF16}) {
    WeightStore store(13);
    ModelShape shape = ShapeOf(type);
    shape.second_type = type == DType::kQ4_K ? DType::kQ6_K : type;
    const StepProgram program = MakeProgram(shape, store);
    const std::vector<int32_t> tokens = RandomTokens(70, 90, 14);
    const CpuOptions cpu{.threads = 2, .activation_dtype = "int8"};
    const Logits whole = Prefill(program, {.cpu = cpu}, tokens);
    EXPECT_LT(WorstError(whole, DoubleModel(program).Run(tokens)), 5e-2) << DTypeName(type);
    // Where a value lies between two codes, float64 may take the other one.
    DoubleModel quantised(program);
    quantised.QuantiseInputs();
    EXPECT_LT(WorstError(whole, quantised.Run(tokens)), 4e-3) << DTypeName(type);
    for (const std::string& isa : AvailableIsas()) {
      const CpuOptions other{.threads = 1, .isa = isa, .activation_dtype = "int8"};
      PagedRunner runner(program, {.cpu = other});
      Logits pieces;
      for (int begin = 0; begin < 70;) {
        const int end = std::min(70, begin + 1 + begin % 20);
        const Logits part =
            runner.Step({{0, begin, {tokens.begin() + begin, tokens.begin() + end}}});
        pieces.insert(pieces.end(), part.begin(), part.end());
        begin = end;
      }
      EXPECT_EQ(pieces, whole) << DTypeName(type) << " " << isa;
      EXPECT_NE(runner.backend().NumericsClass(program).find("int8"), std::string::npos);
    }
  }
}

TEST(Program, LayerNormLearnedPositionsReluAndScaledBlocks) {
  WeightStore store(3);
  ModelShape shape;
  shape.layer_norm = true;
  shape.hidden = 72;
  shape.head_dim = 20;
  shape.inner = 100;
  shape.block_scale = 0.22f;
  const StepProgram program = MakeProgram(shape, store);
  const std::vector<int32_t> tokens = RandomTokens(40, 90, 4);
  const Logits got = Prefill(program, {.cpu = {.threads = 2, .isa = "reference"}}, tokens);
  EXPECT_LT(WorstError(got, DoubleModel(program).Run(tokens)), 1e-5);
}

TEST(Program, WindowsHeadNormsAndSoftCaps) {
  WeightStore store(5);
  ModelShape shape;
  shape.layers = 3;
  shape.windows = {24, 0, 24};
  shape.head_norm = true;
  shape.logits_softcap = 3.0f;
  shape.attention_softcap = 2.0f;
  const StepProgram program = MakeProgram(shape, store);
  const std::vector<int32_t> tokens = RandomTokens(100, 90, 6);
  const Logits got = Prefill(program, {.cpu = {.threads = 2, .isa = "reference"}}, tokens);
  EXPECT_LT(WorstError(got, DoubleModel(program).Run(tokens)), 1e-5);
}

TEST(Program, PrefillChunksAndDecodeGiveTheSameBits) {
  WeightStore store(7);
  ModelShape shape;
  shape.layers = 3;
  shape.windows = {24, 0, 24};
  shape.type = DType::kQ8_0;
  shape.second_type = DType::kQ5_0;
  const StepProgram program = MakeProgram(shape, store);
  const std::vector<int32_t> tokens = RandomTokens(90, 90, 8);
  const Logits whole = Prefill(program, {.cpu = {.threads = 1, .isa = "reference"}}, tokens);
  for (const int chunk : {1, 7, 16, 33}) {
    PagedRunner runner(program, {.cpu = {.threads = 2, .isa = "reference"}});
    Logits pieces;
    for (int begin = 0; begin < 90; begin += chunk) {
      const int end = std::min(90, begin + chunk);
      runner.DropBehindWindow(0, begin);
      const Logits part = runner.Step({{0, begin, {tokens.begin() + begin, tokens.begin() + end}}});
      pieces.insert(pieces.end(), part.begin(), part.end());
    }
    EXPECT_EQ(pieces, whole) << "chunk " << chunk;
  }
}

}  // namespace
}  // namespace quire::kernels::test
