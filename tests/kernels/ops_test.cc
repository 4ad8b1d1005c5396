// Programs whose shapes do not agree are named, op and reason.
#include "kernels/ops.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

TEST(CheckProgram, AcceptsTestModels) {
  WeightStore store(1);
  EXPECT_EQ(CheckProgram(MakeProgram(ModelShape{}, store)), "");
  ModelShape plain;
  plain.layer_norm = true;
  plain.head_norm = true;
  EXPECT_EQ(CheckProgram(MakeProgram(plain, store)), "");
}

template <class Kind>
Kind& Find(StepProgram& program) {
  for (Op& op : program.ops) {
    if (auto* found = std::get_if<Kind>(&op)) return *found;
  }
  std::abort();
}

TEST(CheckProgram, NamesTheOpAndTheShape) {
  const std::vector<std::pair<const char*, std::function<void(StepProgram&)>>> faults = {
      {"embed", [](StepProgram& p) { p.vocab_size += 1; }},
      {"norm", [](StepProgram& p) { Find<NormOp>(p).weight = 999; }},
      {"norm", [](StepProgram& p) { Find<NormOp>(p).out = -1; }},
      {"linear", [](StepProgram& p) { p.weights[Find<LinearOp>(p).weight].rows -= 16; }},
      {"linear", [](StepProgram& p) { Find<LinearOp>(p).bias = Find<NormOp>(p).weight; }},
      {"rope_append", [](StepProgram& p) { Find<RopeAppendOp>(p).kv_heads = 3; }},
      {"rope_append", [](StepProgram& p) { p.ropes[0].inverse_frequency.pop_back(); }},
      {"attention", [](StepProgram& p) { Find<AttentionOp>(p).layer = 77; }},
      {"gather_rows", [](StepProgram& p) { Find<GatherRowsOp>(p).out = Find<NormOp>(p).in; }},
      {"logits", [](StepProgram& p) { Find<LogitsOp>(p).out = Find<LogitsOp>(p).in; }},
      {"sample", [](StepProgram& p) { Find<SampleOp>(p).logits = Find<NormOp>(p).in; }},
  };
  for (const auto& [name, spoil] : faults) {
    WeightStore store(2);
    StepProgram program = MakeProgram(ModelShape{}, store);
    spoil(program);
    const std::string error = CheckProgram(program);
    EXPECT_NE(error.find(std::string("(") + name + ")"), std::string::npos)
        << name << ": " << error;
  }
}

}  // namespace
}  // namespace quire::kernels::test
