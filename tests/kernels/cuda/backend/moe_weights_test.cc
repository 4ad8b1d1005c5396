// Weights of experts on the device: one behind another in one form, routers of any size; and what
// of a mixture is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/backend/device_weights.h"
#include "kernels/cuda/backend/expand.h"
#include "kernels/cuda/backend/lowering.h"
#include "kernels/cuda/emulate/emulated_runtime.h"
#include "tests/kernels/test_weights.h"
#include "tests/support/tiny_program.h"

namespace quire::kernels::cuda::test {
namespace {

using kernels::test::WeightStore;

Weight Stack(WeightStore& store, const std::vector<std::pair<DType, int64_t>>& parts,
             int64_t cols) {
  Weight weight;
  weight.name = "expert";
  weight.cols = cols;
  for (const auto& [type, rows] : parts) {
    weight.parts.push_back(store.Random(type, rows, cols, 1.0f));
    weight.rows += rows;
  }
  return weight;
}

// Weights of experts as one stack, and what loading makes of them.
struct ExpertStack {
  StepProgram program;
  DeviceProgram lowered;
  emulate::EmulatedRuntime runtime{5, emulate::Checks::kNone};
  DeviceHeap heap{runtime};
  DeviceWeights weights;

  Weight& Add(Weight weight) {
    WeightRole role;
    role.used = role.is_matrix = true;
    role.stack = 0;
    role.place = static_cast<int>(program.weights.size());
    lowered.stacks.resize(1);
    lowered.stacks[0].push_back(role.place);
    lowered.weights.push_back(role);
    return program.weights.emplace_back(std::move(weight));
  }
  std::string Load() { return weights.Load(program, lowered, {}, runtime, heap); }
};

TEST(CudaMoeWeights, LieOneBehindAnotherPartByPart) {
  WeightStore store(1);
  ExpertStack stack;
  constexpr int kExperts = 3;
  for (int e = 0; e < kExperts; ++e) {
    stack.Add(Stack(store, {{DType::kQ4_0, 24}, {DType::kQ8_0, 16}}, 64));
  }
  ASSERT_EQ(stack.Load(), "");
  EXPECT_EQ(stack.heap.bytes(), PlanWeightBytes(stack.program, stack.lowered));
  for (int e = 0; e < kExperts; ++e) {
    const DeviceWeight& own = stack.weights.At(e);
    ASSERT_EQ(own.parts.size(), 2u);
    for (size_t part = 0; part < 2; ++part) {
      const size_t bytes = own.parts[part].Bytes(64);
      const unsigned char* at = own.parts[part].quantised.data;
      EXPECT_EQ(at, stack.weights.At(0).parts[part].quantised.data + e * bytes);
      std::vector<std::byte> expected(bytes);
      PackQuantised(stack.program.weights[static_cast<size_t>(e)].parts[part], 0, expected.data());
      EXPECT_EQ(memcmp(at, expected.data(), bytes), 0) << e << " " << part;
    }
  }
}

// A step that is no number of the product's type anywhere takes the fast way from all.
TEST(CudaMoeWeights, StepsOfAllExpertsDecideHowCodesAreRead) {
  for (const bool narrow : {false, true}) {
    WeightStore store(4);
    ExpertStack stack;
    for (int e = 0; e < 2; ++e) {
      const WeightSource& source = stack.Add(Stack(store, {{DType::kG4, 16}}, 64)).parts[0];
      auto* block = const_cast<std::byte*>(source.data);
      for (int64_t i = 0; i < source.Bytes() && (narrow || e == 0); i += BlockBytes(DType::kG4)) {
        std::memset(block + i, 0, 2);  // the lower half of the step
      }
    }
    ASSERT_EQ(stack.Load(), "");
    EXPECT_EQ(stack.weights.At(0).parts[0].quantised.narrow_steps, narrow);
  }
}

// Wider than what is brought to the device at once.
TEST(CudaMoeWeights, ARouterMayBeOfAnySize) {
  WeightStore store(2);
  StepProgram program;
  program.weights.push_back(Stack(store, {{DType::kF32, 70}, {DType::kBF16, 3}}, 32767));
  DeviceProgram lowered;
  WeightRole role;
  role.used = true;
  lowered.weights.push_back(role);
  emulate::EmulatedRuntime runtime(5, emulate::Checks::kNone);
  DeviceHeap heap(runtime);
  DeviceWeights weights;
  ASSERT_EQ(weights.Load(program, lowered, {}, runtime, heap), "");
  const float* at = weights.At(0).floats();
  for (int64_t row = 0; row < 73; ++row) {
    for (const int64_t col : {int64_t{0}, int64_t{100}, int64_t{32766}}) {
      const WeightSource& source = program.weights[0].parts[row < 70 ? 0 : 1];
      ASSERT_EQ(at[row * 32767 + col], kernels::test::ElementOf(source, row % 70, col)) << row;
    }
  }
  EXPECT_EQ(at[73 * 32767], 0.0f) << "what fills up the vector";
}

TEST(CudaMoeWeights, ExpertsOfSeveralTypesAreExpanded) {
  quire::test::TinyProgram tiny(5, 0, 1, {.experts = 4});
  WeightStore store(3);
  const MoeOp& moe = quire::test::First<MoeOp>(tiny.program);
  for (size_t e = 0; e < 4; ++e) {
    const auto id = static_cast<size_t>(moe.experts[e].down);
    tiny.program.weights[id] = Stack(store, {{e == 2 ? DType::kQ8_0 : DType::kQ4_0, 32}}, 64);
  }
  DeviceProgram lowered;
  ASSERT_EQ(Lower(tiny.program, lowered), "");
  const WeightForms forms = PlanWeightForms(tiny.program, lowered);
  EXPECT_EQ(forms.quantised, 0);
  EXPECT_EQ(forms.expanded, 4);
  EXPECT_EQ(forms.expanded_why, "expert: the experts of its layer have weights of several types");
}

TEST(CudaMoeWeights, WhatHasNoKernelIsRefused) {
  Weight asks;
  WeightStore store(3);
  asks = Stack(store, {{DType::kG8, 16}}, 64);
  asks.parts[0].rounding.code = ActivationRounding::Code::kInt8;
  WeightRole role;
  role.used = role.is_matrix = role.by_codes = true;
  EXPECT_EQ(WhyNotByCodes(asks, role), nullptr);
  role.stack = 0;
  EXPECT_STREQ(WhyNotByCodes(asks, role), "experts multiply 16 bits");

  const auto error = [](const std::function<void(quire::test::TinyProgram&, MoeOp&)>& spoil) {
    quire::test::TinyProgram tiny(5, 0, 1, {.experts = 4});
    spoil(tiny, quire::test::First<MoeOp>(tiny.program));
    DeviceProgram lowered;
    return Lower(tiny.program, lowered);
  };
  EXPECT_EQ(error([](auto&, MoeOp&) {}), "");
  EXPECT_NE(error([](auto&, MoeOp& moe) { moe.experts[1].gate_up_bias = kNoId; }).find("bias"),
            std::string::npos);
  EXPECT_NE(error([](auto& tiny, MoeOp& moe) {
              tiny.program.weights[static_cast<size_t>(moe.experts[0].down)].cols = 60;
            }).find("multiples of 8"),
            std::string::npos);
  // The residual stream's type is float32: a router may read it. A product's rows are not.
  EXPECT_EQ(error([](auto&, MoeOp& moe) { moe.router_in = moe.out; }), "");
  EXPECT_NE(error([](auto& tiny, MoeOp& moe) {
              tiny.program.buffers.push_back({"unwritten", 32, false});
              moe.router_in = static_cast<BufferId>(tiny.program.buffers.size()) - 1;
            }).find("what no norm makes"),
            std::string::npos);
  // Rows that a gated norm writes in 16 bits alone are for products.
  EXPECT_NE(error([](auto& tiny, MoeOp& moe) {
              moe.router_in = moe.out;
              GatedNormOp norm;
              norm.weight = quire::test::First<NormOp>(tiny.program).weight;
              norm.group = 32;
              norm.in = norm.gate = norm.out = moe.out;
              auto& ops = tiny.program.ops;
              const auto at = std::find_if(ops.begin(), ops.end(), [](const Op& op) {
                return std::holds_alternative<MoeOp>(op);
              });
              ops.insert(at, norm);
            }).find("only a product may read what is gated; use --device cpu"),
            std::string::npos);
  EXPECT_NE(error([](auto& tiny, MoeOp&) {
              for (Op& op : tiny.program.ops) {
                if (auto* attention = std::get_if<AttentionOp>(&op)) attention->head_dim = 136;
              }
            }).find("sinks of heads above 128 elements"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::kernels::cuda::test
