// Which products multiply in float16: what a norm feeds, with weights that float16 holds as well as
// the file does.
#include "kernels/cuda/backend/halves.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace quire::kernels::cuda {
namespace {

using Types = std::vector<DType>;

// Steps over buffers of 16 bits; buffer 0 is float32.
class CudaHalvesTest : public testing::Test {
 protected:
  CudaHalvesTest() {
    for (int i = 0; i < 8; ++i) lowered_.buffers.push_back({std::to_string(i), 8, false, i == 0});
  }
  WeightId NewWeight(const Types& types) {
    Weight weight;
    for (const DType type : types) weight.parts.push_back({type, 8, 256, nullptr});
    program_.weights.push_back(std::move(weight));
    lowered_.weights.emplace_back();
    return static_cast<WeightId>(program_.weights.size()) - 1;
  }
  // The step's number.
  size_t Norm(BufferId out) {
    NormStep step;
    step.in = 0;
    step.out = out;
    lowered_.steps.emplace_back(step);
    return lowered_.steps.size() - 1;
  }
  void Multiply(BufferId in, WeightId weight, BufferId out) {
    ProductStep step;
    step.in = in;
    step.weight = weight;
    step.out = out;
    lowered_.steps.emplace_back(step);
  }
  void Logits(BufferId in, WeightId head) {
    LogitsOp op;
    op.in = in;
    op.head = head;
    lowered_.steps.emplace_back(op);
  }
  bool NormIsHalf(size_t step) const { return std::get<NormStep>(lowered_.steps[step]).half; }
  bool WeightIsHalf(WeightId id) const { return lowered_.weights[id].half; }

  StepProgram program_;
  DeviceProgram lowered_;
};

TEST_F(CudaHalvesTest, ANormsProductsAreAsFarAsTheirFilesAllow) {
  const struct {
    Types types;
    bool half;
  } kCases[] = {{{DType::kQ4_K}, true}, {{DType::kQ8_0, DType::kQ6_K, DType::kF16}, true},
                {{DType::kF16}, true},  {{DType::kBF16}, false},
                {{DType::kF32}, false}, {{DType::kQ4_0, DType::kF32}, false}};
  std::vector<std::pair<size_t, WeightId>> made;
  for (const auto& c : kCases) {
    const WeightId weight = NewWeight(c.types);
    made.emplace_back(Norm(1), weight);  // all in the same buffer
    Multiply(1, weight, 2);
  }
  const WeightId head = NewWeight({DType::kQ8_0});
  const size_t last = Norm(1);
  Logits(1, head);
  ChooseHalves(program_, lowered_);
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_EQ(NormIsHalf(made[i].first), kCases[i].half) << i;
    EXPECT_EQ(WeightIsHalf(made[i].second), kCases[i].half) << i;
  }
  EXPECT_TRUE(NormIsHalf(last));
  EXPECT_TRUE(WeightIsHalf(head));
}

TEST_F(CudaHalvesTest, WhatNoNormMakesIsNot) {
  const WeightId in = NewWeight({DType::kQ4_0});
  const WeightId down = NewWeight({DType::kQ4_0});
  const WeightId output = NewWeight({DType::kQ4_0});
  const WeightId rounded = NewWeight({DType::kQ4_0});
  Norm(1);
  Multiply(1, in, 2);
  lowered_.steps.emplace_back(ActivationStep{LinearOp::Activation::kSiluGated, 2, 1});
  Multiply(1, down, 0);
  Norm(1);
  AttentionOp attention;
  attention.out = 1;
  lowered_.steps.emplace_back(attention);
  Multiply(1, output, 0);
  lowered_.steps.emplace_back(RoundStep{0, 1});
  Multiply(1, rounded, 0);
  ChooseHalves(program_, lowered_);
  EXPECT_TRUE(WeightIsHalf(in));
  EXPECT_FALSE(WeightIsHalf(down));
  EXPECT_FALSE(WeightIsHalf(output));
  EXPECT_FALSE(WeightIsHalf(rounded));
}

TEST_F(CudaHalvesTest, OneProductTakesItsNeighboursWithIt) {
  const WeightId exact = NewWeight({DType::kBF16});
  const WeightId beside = NewWeight({DType::kQ4_0});
  const WeightId far = NewWeight({DType::kQ8_0});
  const WeightId apart = NewWeight({DType::kQ8_0});
  const size_t first = Norm(1);
  Multiply(1, far, 2);
  const size_t second = Norm(1);
  Multiply(1, far, 2);  // of two norms: so far has one type
  Multiply(1, beside, 3);
  const size_t third = Norm(1);
  Multiply(1, beside, 2);
  Multiply(1, exact, 3);
  const size_t fourth = Norm(1);
  Multiply(1, apart, 2);
  ChooseHalves(program_, lowered_);
  for (const size_t norm : {first, second, third}) EXPECT_FALSE(NormIsHalf(norm)) << norm;
  for (const WeightId weight : {exact, beside, far}) EXPECT_FALSE(WeightIsHalf(weight)) << weight;
  EXPECT_TRUE(NormIsHalf(fourth));
  EXPECT_TRUE(WeightIsHalf(apart));
}

}  // namespace
}  // namespace quire::kernels::cuda
