// Experts in the classes int8 and w8a8: their products are those of any other matrix there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/grouped_blocks.h"
#include "kernels/ops.h"
#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

using Code = ActivationRounding::Code;

// How the experts of a mixture are kept, and the class that rounds their inputs.
struct Scheme {
  const char* name;
  const char* activation_dtype;
  DType type;
  DType second_type;
  ActivationRounding rounding;
};
const Scheme kSchemes[] = {
    {"Q4K", "int8", DType::kQ4_K, DType::kQ6_K, {}},
    {"Q8_0", "int8", DType::kQ8_0, DType::kQ4_0, {}},
    {"OneFloatMatrix", "int8", DType::kQ4_K, DType::kF32, {}},
    {"Int8Token", "w8a8", DType::kG8, DType::kG8, {.code = Code::kInt8}},
    {"Int8Static", "w8a8", DType::kG8, DType::kG8, {.code = Code::kInt8, .scale = 0.05f}},
    {"E4m3Groups", "w8a8", DType::kF8, DType::kF8, {.code = Code::kE4m3, .group = 128}},
};

// int8 weights with one scale for each row.
void ShareScales(const WeightSource& source) {
  const int64_t bytes = BlockBytes(source.type);
  for (int64_t row = 0; row < source.rows; ++row) {
    auto* blocks = const_cast<std::byte*>(source.Row(row));
    for (int64_t block = 1; block < source.cols / BlockElements(source.type); ++block) {
      std::memcpy(blocks + block * bytes, blocks,
                  static_cast<size_t>(grouped::HeadBytes(source.type)));
    }
  }
}

class Experts : public ::testing::TestWithParam<Scheme> {
 protected:
  StepProgram Make(WeightStore& store, int experts, int chosen) const {
    ModelShape shape;
    shape.type = GetParam().type;
    shape.second_type = GetParam().second_type;
    shape.experts = experts;
    shape.rule.chosen = chosen;
    StepProgram program = MakeProgram(shape, store);
    // Gate and up have static scales of their own, so that a matrix has two inputs.
    float step = 1.0f;
    for (Weight& weight : program.weights) {
      for (WeightSource& part : weight.parts) {
        if (part.type != GetParam().type) continue;
        part.rounding = GetParam().rounding;
        part.rounding.scale *= step += 0.01f;
        if (part.type == DType::kG8) ShareScales(part);
      }
    }
    return program;
  }
  PagedRunner::Options In(const std::string& isa, int threads) const {
    return {
        .cpu = {.threads = threads, .isa = isa, .activation_dtype = GetParam().activation_dtype},
        .sequences = 2};
  }
};

// The same weights as the two products of a plain mlp. Requires: mixtures of one expert, whose
// weight is then exactly 1.
StepProgram WithoutMixtures(StepProgram program, int inner_width) {
  const auto inner = static_cast<BufferId>(program.buffers.size());
  Buffer buffer;
  buffer.name = "expert_inner";
  buffer.width = inner_width;
  program.buffers.push_back(buffer);
  std::vector<Op> ops;
  for (const Op& op : program.ops) {
    const auto* moe = std::get_if<MoeOp>(&op);
    if (moe == nullptr) {
      ops.push_back(op);
      continue;
    }
    const MoeOp::Expert& expert = moe->experts.front();
    ops.push_back(LinearOp{
        .weight = expert.gate_up, .activation = moe->activation, .in = moe->in, .out = inner});
    ops.push_back(LinearOp{
        .weight = expert.down, .accumulate = moe->accumulate, .in = inner, .out = moe->out});
  }
  program.ops = std::move(ops);
  return program;
}

TEST_P(Experts, OneExpertHasTheBitsOfAPlainMlp) {
  WeightStore store(51);
  const StepProgram mixture = Make(store, 1, 1);
  ASSERT_EQ(CheckProgram(mixture), "");
  const StepProgram plain = WithoutMixtures(mixture, ModelShape().inner);
  ASSERT_EQ(CheckProgram(plain), "");
  for (const std::string isa : {"reference", "avx2", "auto"}) {
    for (const int count : {1, 3, 20, 70}) {
      const std::vector<int32_t> tokens = RandomTokens(count, 90, 52);
      PagedRunner experts(mixture, In(isa, 2)), mlp(plain, In(isa, 2));
      EXPECT_EQ(experts.Step({{0, 0, tokens}}), mlp.Step({{0, 0, tokens}}))
          << isa << ", " << count << " tokens";
    }
  }
}

// Neither chunk nor neighbours, threads or instruction set change a bit.
TEST_P(Experts, HaveTheSameBitsInAnyCompany) {
  WeightStore store(53);
  const StepProgram program = Make(store, 9, 3);
  const std::vector<int32_t> tokens = RandomTokens(70, 90, 54);
  const std::vector<int32_t> others = RandomTokens(64, 90, 55);
  PagedRunner whole(program, In("reference", 1));
  const Logits wanted = whole.Step({{0, 0, tokens}});
  for (const int chunk : {1, 5, 16, 33}) {
    PagedRunner runner(program, In("auto", 3));
    EXPECT_EQ(RunInChunks(runner, tokens, chunk, others), wanted) << "chunk " << chunk;
  }
}

TEST_P(Experts, TheEstimateIsWhatIsReserved) {
  WeightStore store(59);
  const StepProgram program = Make(store, 5, 2);
  std::string error;
  const auto backend =
      MakeCpuBackend({.threads = 2, .activation_dtype = GetParam().activation_dtype}, error);
  ASSERT_NE(backend, nullptr) << error;
  EXPECT_EQ(backend->Refusal(program, {}), "");
  ProgramOptions options;
  options.kv = DealLayers(program.layer_windows, backend->PageShape(program, 16));
  options.page_count = 4;
  const auto loaded = backend->Load(program, options);
  EXPECT_EQ(loaded->WorkspaceBytes(), backend->EstimateWorkspaceBytes(program, options));
}

INSTANTIATE_TEST_SUITE_P(Classes, Experts, ::testing::ValuesIn(kSchemes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace quire::kernels::test
