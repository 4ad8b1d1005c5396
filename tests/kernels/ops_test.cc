// Programs whose shapes do not agree are named, op and reason.
#include "kernels/ops.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

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

// A program of a rank holds its ids of the vocabulary, in logits as wide as those of every rank.
TEST(CheckProgram, RanksHoldTheirPartOfTheVocabulary) {
  WeightStore store(4);
  ModelShape shape;
  shape.vocabulary = 30;
  StepProgram program = MakeProgram(shape, store);
  program.vocab_size = 88;
  program.ranks = 3;
  program.rank = 2;  // 28 of 30 columns
  program.weights[Find<EmbedOp>(program).table].rows = 28;
  program.weights[Find<EmbedOp>(program).table].parts[0].rows = 28;
  EXPECT_EQ(CheckProgram(program), "");
  program.rank = 1;
  EXPECT_NE(CheckProgram(program).find("(embed)"), std::string::npos);
  program.rank = 3;
  EXPECT_EQ(CheckProgram(program), "rank 3 of 3 does not exist");
}

TEST(VocabularyOf, EveryIdHasOneRankAndEveryRankTheSameWidth) {
  for (const int vocab_size : {1, 5, 64, 90, 262144}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      int next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const VocabularySlice slice = VocabularyOf(vocab_size, rank, ranks);
        EXPECT_EQ(slice.begin, next);
        EXPECT_EQ(slice.width, (vocab_size + ranks - 1) / ranks);
        EXPECT_LE(slice.count, slice.width);
        EXPECT_GE(slice.count, 0);
        next += slice.count;
      }
      EXPECT_EQ(next, vocab_size);
    }
  }
}

// One order permutes the inputs of a linear op; no other op has one.
TEST(CheckProgram, OrdersOfInputsArePermutationsOfLinearOps) {
  WeightStore store(5);
  StepProgram program = MakeProgram(ModelShape{}, store);
  Weight& weight = program.weights[Find<LinearOp>(program).weight];
  ASSERT_GT(weight.parts.size(), 1u);
  std::vector<int32_t> order(static_cast<size_t>(weight.cols));
  std::iota(order.rbegin(), order.rend(), 0);
  const auto give = [&weight](const int32_t* to) {
    for (WeightSource& part : weight.parts) part.order = to;
  };
  const auto complains = [&program](const char* of) {
    return CheckProgram(program).find(of) != std::string::npos;
  };
  give(order.data());
  EXPECT_EQ(CheckProgram(program), "");
  const std::vector<int32_t> copy = order;  // parts have memory of their own
  weight.parts.back().order = copy.data();
  EXPECT_EQ(CheckProgram(program), "");
  weight.parts.back().order = nullptr;
  EXPECT_TRUE(complains("(linear): weight")) << CheckProgram(program);
  EXPECT_TRUE(complains("different orders of inputs"));
  give(order.data());
  order[0] = order[1];
  EXPECT_TRUE(complains("an input twice")) << CheckProgram(program);
  order[0] = static_cast<int32_t>(weight.cols);
  EXPECT_TRUE(complains("one that does not exist"));
  give(nullptr);
  program.weights[Find<LogitsOp>(program).head].parts[0].order = copy.data();
  EXPECT_TRUE(complains("only linear ops")) << CheckProgram(program);
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
