// Norms of q, k and v, queries that grow, and layers of several forms in one model, against the
// float64 interpreter and bit for bit in every chunking and on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/ops.h"
#include "tests/kernels/double_model.h"
#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

void ExpectParity(const StepProgram& program) {
  ASSERT_EQ(CheckProgram(program), "");
  const std::vector<int32_t> tokens = RandomTokens(70, program.vocab_size, 22);
  const auto wanted = DoubleModel(program).Run(tokens);
  Logits first;
  for (const std::string& isa : AvailableIsas()) {
    PagedRunner runner(program, {.cpu = {.threads = 2, .isa = isa}});
    const Logits whole = runner.Step({{0, 0, tokens}});
    EXPECT_LT(WorstError(whole, wanted), 1e-5) << isa;
    if (first.empty()) first = whole;
    EXPECT_EQ(whole, first) << isa << " has other bits than the reference";
    PagedRunner again(program, {.cpu = {.threads = 1, .isa = isa}});
    Logits pieces;
    for (int begin = 0; begin < 70;) {
      const int end = std::min(70, begin + 1 + begin % 20);
      const Logits part = again.Step({{0, begin, {tokens.begin() + begin, tokens.begin() + end}}});
      pieces.insert(pieces.end(), part.begin(), part.end());
      begin = end;
    }
    EXPECT_EQ(pieces, first) << isa;
  }
}

void ExpectParity(const ModelShape& shape) {
  WeightStore store(21);
  ExpectParity(MakeProgram(shape, store));
}

template <class Wanted>
std::vector<Wanted*> All(StepProgram& program) {
  std::vector<Wanted*> found;
  for (Op& op : program.ops) {
    if (auto* own = std::get_if<Wanted>(&op)) found.push_back(own);
  }
  return found;
}

// Heads that are no multiple of the vectors' width, and of the cache's padding.
ModelShape SmallHeads() {
  ModelShape shape;
  shape.hidden = 96;
  shape.heads = 6;
  shape.kv_heads = 2;
  shape.head_dim = 40;
  shape.inner = 64;
  return shape;
}

TEST(HeadNorms, OfEachHeadWithWeightsForAll) {
  ModelShape shape = SmallHeads();
  shape.head_norm = true;
  ExpectParity(shape);
}

TEST(HeadNorms, LayerNormsWithWeightsForEachHead) {
  ModelShape shape = SmallHeads();
  shape.head_norm = true;
  shape.norm_of_heads = HeadNorm::kLayer;
  ExpectParity(shape);
}

TEST(HeadNorms, OfAllHeadsTogether) {
  ModelShape shape = SmallHeads();
  shape.head_norm = true;
  shape.norm_of_heads = HeadNorm::kWhole;
  ExpectParity(shape);
}

TEST(HeadNorms, OfValues) {
  ModelShape shape = SmallHeads();
  shape.head_norm = true;
  shape.value_norm = true;
  ExpectParity(shape);
}

TEST(HeadNorms, QueriesThatGrow) {
  ModelShape shape = SmallHeads();
  shape.growth = {.rate = 0.3f, .offset = 1, .interval = 9};
  ExpectParity(shape);
}

BufferId AddBuffer(StepProgram& program, int width) {
  program.buffers.push_back({"own", width, false});
  return static_cast<BufferId>(program.buffers.size()) - 1;
}

WeightId AddMatrix(StepProgram& program, WeightStore& store, int64_t rows, int64_t cols) {
  program.weights.push_back(store.RandomWeight(DType::kF32, rows, cols, 0.1f));
  return static_cast<WeightId>(program.weights.size()) - 1;
}

// The first layer has full attention with heads of its own, the others a window.
StepProgram TwoWidths(WeightStore& store) {
  ModelShape shape = SmallHeads();
  shape.layers = 3;
  shape.windows = {0, 20, 20};
  StepProgram program = MakeProgram(shape, store);
  constexpr int kDim = 56;
  program.full = {3, kDim};
  Rope rope = program.ropes[0];
  rope.rotary_dim = 24;
  rope.inverse_frequency.resize(12);
  program.ropes.push_back(rope);
  const BufferId qkv = AddBuffer(program, (shape.heads + 2 * 3) * kDim);
  const BufferId attended = AddBuffer(program, shape.heads * kDim);
  LinearOp& project = *All<LinearOp>(program)[0];
  project.weight = AddMatrix(program, store, (shape.heads + 2 * 3) * kDim, shape.hidden);
  project.out = qkv;
  RopeAppendOp& append = *All<RopeAppendOp>(program)[0];
  append.qkv = qkv;
  append.kv_heads = 3;
  append.head_dim = kDim;
  append.rope = 1;
  AttentionOp& attention = *All<AttentionOp>(program)[0];
  attention.qkv = qkv;
  attention.out = attended;
  attention.kv_heads = 3;
  attention.head_dim = kDim;
  LinearOp& back = *All<LinearOp>(program)[1];
  back.weight = AddMatrix(program, store, shape.hidden, shape.heads * kDim);
  back.in = attended;
  return program;
}

TEST(LayerForms, TwoWidthsOfHeadsInOneModel) {
  WeightStore store(31);
  ExpectParity(TwoWidths(store));
}

TEST(LayerForms, ALayerReadsTheKeysOfAnother) {
  WeightStore store(32);
  StepProgram program = TwoWidths(store);
  const AttentionOp other = *All<AttentionOp>(program)[1];
  program.layer_windows[2] = kNoKeys;
  const BufferId query = AddBuffer(program, other.heads * other.head_dim);
  LinearOp& project = *All<LinearOp>(program)[8];
  ASSERT_EQ(project.out, other.qkv);
  project.weight = AddMatrix(program, store, other.heads * other.head_dim, 96);
  project.out = query;
  RopeAppendOp& append = *All<RopeAppendOp>(program)[2];
  append.qkv = query;
  append.kv_heads = 0;
  append.layer = 1;
  AttentionOp& attention = *All<AttentionOp>(program)[2];
  attention.qkv = query;
  attention.layer = 1;
  ExpectParity(program);
  attention.layer = 2;
  EXPECT_NE(CheckProgram(program).find("attention layer 2 does not exist"), std::string::npos);
}

TEST(LayerForms, NormsOfPiecesAndOfAScaledSum) {
  WeightStore store(33);
  StepProgram program = MakeProgram(SmallHeads(), store);
  NormOp& pieces = *All<NormOp>(program)[1];
  program.weights.push_back(store.RandomVector(24, 1.0f, 0.2f));
  pieces.weight = static_cast<WeightId>(program.weights.size()) - 1;
  pieces.pieces = 4;
  NormOp& sum = *All<NormOp>(program)[2];
  sum.accumulate = true;
  sum.scale = 0.7f;
  ExpectParity(program);
  pieces.pieces = 5;
  EXPECT_NE(CheckProgram(program).find("do not divide into 5 pieces"), std::string::npos);
}

TEST(LayerForms, SlicesThatAreGated) {
  WeightStore store(34);
  StepProgram program = MakeProgram(SmallHeads(), store);
  const LinearOp& up = *All<LinearOp>(program)[2];
  const BufferId qkv = All<AttentionOp>(program)[0]->qkv;
  const auto at = std::find_if(program.ops.begin(), program.ops.end(),
                               [&up](const Op& op) { return std::get_if<LinearOp>(&op) == &up; });
  program.ops.insert(at, SliceGateOp{up.in, qkv, 5, 0.7f});
  ExpectParity(program);
  All<SliceGateOp>(program)[0]->first = 305;
  EXPECT_NE(CheckProgram(program).find("end after 400"), std::string::npos);
}

TEST(LayerForms, RoutersWithAnInputOfTheirOwnAndScalesOfExperts) {
  WeightStore store(35);
  ModelShape shape = SmallHeads();
  shape.experts = 5;
  shape.rule.chosen = 2;
  StepProgram program = MakeProgram(shape, store);
  program.weights.push_back(store.RandomVector(5, 1.0f, 0.4f));
  const BufferId routed = AddBuffer(program, shape.hidden);
  // What the router reads is made beside what the experts do.
  for (size_t i = 0; i < program.ops.size(); ++i) {
    auto* moe = std::get_if<MoeOp>(&program.ops[i]);
    if (moe == nullptr) continue;
    moe->router_in = routed;
    moe->expert_scales = static_cast<WeightId>(program.weights.size()) - 1;
    NormOp norm = std::get<NormOp>(program.ops[i - 1]);
    norm.scale = 0.5f;
    norm.out = routed;
    program.ops.insert(program.ops.begin() + static_cast<ptrdiff_t>(i), norm);
    ++i;
  }
  ExpectParity(program);
}

TEST(HeadNorms, WrongShapesAreNamed) {
  WeightStore store(23);
  ModelShape shape = SmallHeads();
  shape.head_norm = true;
  shape.norm_of_heads = HeadNorm::kWhole;
  const StepProgram good = MakeProgram(shape, store);
  const auto error = [&good](void (*spoil)(RopeAppendOp&)) {
    StepProgram program = good;
    for (Op& op : program.ops) {
      if (auto* append = std::get_if<RopeAppendOp>(&op)) spoil(*append);
    }
    return CheckProgram(program);
  };
  EXPECT_NE(error([](RopeAppendOp& op) { op.norm = HeadNorm::kRms; }).find("q_norm"),
            std::string::npos);
  EXPECT_NE(error([](RopeAppendOp& op) { op.squares = op.qkv; }).find("squares"),
            std::string::npos);
  EXPECT_NE(error([](RopeAppendOp& op) { op.norm_heads = 1; }).find("fewer"), std::string::npos);
  EXPECT_NE(error([](RopeAppendOp& op) { op.growth.interval = 0; }).find("interval"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::kernels::test
