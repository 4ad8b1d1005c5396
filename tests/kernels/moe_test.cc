// Mixtures of experts: choices and sums against float64, the same bits in any company, ties to the
// lower id.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"
#include "kernels/step_times.h"
#include "tests/kernels/double_model.h"
#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

using Scores = RoutingRule::Scores;

ModelShape ShapeOf(const RoutingRule& rule, int experts) {
  ModelShape shape;
  shape.hidden = 64;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 32;
  shape.inner = 32;
  shape.experts = experts;
  shape.rule = rule;
  return shape;
}

// Rules of the families, and odd counts.
struct Mixture {
  const char* name;
  int experts;
  RoutingRule rule;
  bool selection_bias = false;
  bool biases = false;
  bool plain = false;
};
const Mixture kMixtures[] = {
    {"qwen3", 8, {.chosen = 3}},
    {"qwen2", 7, {.chosen = 2, .renormalise = false}},
    {"one", 1, {.scores = Scores::kSigmoid, .renormalise = false}},
    {"all", 5, {.chosen = 5}},
    {"deepseek_v2",
     12,
     {.chosen = 3, .groups = 4, .groups_used = 2, .renormalise = false, .scale = 4.0f}},
    {"deepseek_v3",
     16,
     {.scores = Scores::kSigmoid,
      .chosen = 4,
      .groups = 4,
      .groups_used = 2,
      .best_of_group = 2,
      .scale = 2.5f},
     true},
    {"many", 33, {.chosen = 6}},
    {"gpt_oss", 6, {.chosen = 4}, false, true},
    {"nemotron_h", 10, {.scores = Scores::kSigmoid, .chosen = 3, .scale = 2.5f}, true, false, true},
};

class Mixtures : public ::testing::TestWithParam<Mixture> {
 protected:
  StepProgram Make(WeightStore& store, DType type = DType::kF32) const {
    ModelShape shape = ShapeOf(GetParam().rule, GetParam().experts);
    shape.selection_bias = GetParam().selection_bias;
    shape.expert_biases = shape.sinks = GetParam().biases;
    shape.plain_experts = GetParam().plain;
    shape.type = type;
    shape.second_type = type == DType::kF32 ? DType::kQ8_0 : type;
    return MakeProgram(shape, store);
  }
};

TEST_P(Mixtures, AgreesWithFloat64OnEveryInstructionSet) {
  WeightStore store(31);
  const StepProgram program = Make(store);
  ASSERT_EQ(CheckProgram(program), "");
  const std::vector<int32_t> tokens = RandomTokens(40, 90, 32);
  const auto wanted = DoubleModel(program).Run(tokens);
  Logits first;
  for (const std::string& isa : AvailableIsas()) {
    PagedRunner runner(program, {.cpu = {.threads = 2, .isa = isa}});
    const Logits got = runner.Step({{0, 0, tokens}});
    EXPECT_LT(WorstError(got, wanted), 1e-5) << isa;
    if (first.empty()) first = got;
    EXPECT_EQ(got, first) << isa << " has other bits than the reference";
  }
}

// A token's bits do not depend on chunk, neighbours, threads, or how many of them meet an expert.
TEST_P(Mixtures, HasTheSameBitsInAnyCompany) {
  WeightStore store(33);
  const StepProgram program = Make(store, DType::kQ4_0);
  const std::vector<int32_t> tokens = RandomTokens(90, 90, 34);
  const std::vector<int32_t> others = RandomTokens(64, 90, 35);
  PagedRunner whole(program, {.cpu = {.threads = 1}});
  const Logits wanted = whole.Step({{0, 0, tokens}});
  for (const int chunk : {1, 2, 5, 16, 17, 31, 33, 64}) {
    PagedRunner runner(program, {.cpu = {.threads = 3}, .sequences = 2});
    EXPECT_EQ(RunInChunks(runner, tokens, chunk, others), wanted) << "chunk " << chunk;
  }
}

// A rank that has some of the experts adds what these make, whatever the other ranks' would.
TEST_P(Mixtures, SomeOfItsExpertsAgreeWithFloat64) {
  WeightStore store(34);
  StepProgram program = Make(store);
  const int first = GetParam().experts / 3;
  const int count = (GetParam().experts + 1) / 2;
  for (Op& op : program.ops) {
    auto* moe = std::get_if<MoeOp>(&op);
    if (moe == nullptr) continue;
    moe->all_experts = static_cast<int>(moe->experts.size());
    moe->first_expert = first;
    moe->experts = {moe->experts.begin() + first, moe->experts.begin() + first + count};
  }
  ASSERT_EQ(CheckProgram(program), "");
  const std::vector<int32_t> tokens = RandomTokens(40, 90, 32);
  const auto wanted = DoubleModel(program).Run(tokens);
  for (const std::string& isa : AvailableIsas()) {
    PagedRunner runner(program, {.cpu = {.threads = 2, .isa = isa}});
    EXPECT_LT(WorstError(runner.Step({{0, 0, tokens}}), wanted), 1e-5) << isa;
  }
}

INSTANTIATE_TEST_SUITE_P(Moe, Mixtures, ::testing::ValuesIn(kMixtures),
                         [](const auto& info) { return std::string(info.param.name); });

// More tokens than one slice takes.
TEST(Moe, LongStepsAreCutIntoSlices) {
  WeightStore store(36);
  const StepProgram program = MakeProgram(ShapeOf({.chosen = 2}, 4), store);
  const std::vector<int32_t> tokens = RandomTokens(1024, 90, 37);
  PagedRunner runner(program, {.cpu = {.threads = 2}});
  const Logits whole = runner.Step({{0, 0, tokens}});
  PagedRunner pieces(program, {.cpu = {.threads = 2}});
  const std::vector<int32_t> head(tokens.begin(), tokens.begin() + 300);
  const std::vector<int32_t> tail(tokens.begin() + 300, tokens.end());
  Logits got = pieces.Step({{0, 0, head}});
  const Logits rest = pieces.Step({{0, 300, tail}});
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, whole);
}

// The parts of a step add up to no more than the step, and routing is a part of its mixture.
TEST(Moe, TimesOfStepsAreKept) {
  WeightStore store(36);
  const StepProgram program = MakeProgram(ShapeOf({.chosen = 2}, 4), store);
  StepTimes times;
  PagedRunner runner(program, {.cpu = {.threads = 2}, .times = &times});
  runner.Step({{0, 0, RandomTokens(300, 90, 37)}});
  double ops = 0;
  for (const double seconds : times.ops) ops += seconds;
  EXPECT_GT(ops, times.steps / 2);
  EXPECT_LE(ops, times.steps);
  const double moe = times.ops[Op(MoeOp()).index()];
  EXPECT_GT(times.routing, 0.0);
  EXPECT_LT(times.routing, moe);
  EXPECT_LT(moe, times.steps);
  EXPECT_GE(times.idle, 0.0);
  EXPECT_LT(times.idle, times.steps);
}

TEST(Moe, BFloat16ProductsRouteInFloat32) {
  if (!cpu::HostHas(cpu::Isa::kAvx512Bf16)) GTEST_SKIP() << "this host has no AVX-512 BF16";
  WeightStore store(38);
  const StepProgram program = MakeProgram(ShapeOf({.chosen = 2}, 6), store);
  const std::vector<int32_t> tokens = RandomTokens(20, 90, 39);
  PagedRunner runner(program, {.cpu = {.threads = 2, .activation_dtype = "bfloat16"}});
  EXPECT_LT(WorstError(runner.Step({{0, 0, tokens}}), DoubleModel(program).Run(tokens)), 5e-2);
}

// One token's choice on every instruction set; the sets must agree.
struct Choice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};
Choice Choose(const RoutingRule& rule, std::vector<float> logits,
              const std::vector<float>& bias = {}) {
  std::vector<const cpu::KernelTable*> tables = {&cpu::ReferenceKernels(), &cpu::Avx2Kernels()};
  if (cpu::HostHas(cpu::Isa::kAvx512)) tables.push_back(&cpu::Avx512Kernels());
  Choice first;
  for (const cpu::KernelTable* kernels : tables) {
    Choice choice{std::vector<int32_t>(static_cast<size_t>(rule.chosen), -1),
                  std::vector<float>(static_cast<size_t>(rule.chosen))};
    const auto stride = static_cast<size_t>(cpu::ScoreStride(static_cast<int64_t>(logits.size())));
    std::vector<float> scores(2 * stride, std::numeric_limits<float>::quiet_NaN());
    std::copy(logits.begin(), logits.end(), scores.begin());
    cpu::RouteJob job;
    job.tokens = 1;
    job.experts = static_cast<int>(logits.size());
    job.selection_bias = bias.empty() ? nullptr : bias.data();
    job.rule = rule;
    job.scores = scores.data();
    job.chosen = choice.experts.data();
    job.weights = choice.weights.data();
    kernels->choose_experts(job, 0, 1);
    if (first.experts.empty()) first = choice;
    EXPECT_EQ(choice.experts, first.experts) << kernels->name;
    if (std::isnan(first.weights[0])) continue;
    EXPECT_EQ(choice.weights, first.weights) << kernels->name;
  }
  return first;
}

using Ids = std::vector<int32_t>;

TEST(ChooseExperts, TiesGoToTheLowerId) {
  EXPECT_EQ(Choose({.chosen = 2}, {1, 3, 3, 3, 0}).experts, (Ids{1, 2}));
  EXPECT_EQ(Choose({.chosen = 3}, std::vector<float>(20, -7.0f)).experts, (Ids{0, 1, 2}));
  // A saturated sigmoid is 1 for both.
  EXPECT_EQ(Choose({.scores = Scores::kSigmoid, .chosen = 1}, {90, 100}).experts, (Ids{0}));
}

TEST(ChooseExperts, AllLogitsMayBeNegativeOrNoNumber) {
  EXPECT_EQ(Choose({.chosen = 2}, {-900, -3, -800, -4}).experts, (Ids{1, 3}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Choose({.chosen = 2}, {nan, -1e30f, nan, 2}).experts, (Ids{3, 1}));
  EXPECT_EQ(Choose({.chosen = 2}, {nan, nan, nan}).experts, (Ids{0, 1}));
  EXPECT_EQ(Choose({.scores = Scores::kSigmoid, .chosen = 2}, {nan, nan, nan}).experts,
            (Ids{0, 1}));
}

// GLM-5.2's biases lie in 6.8–7.1: bfloat16 would make all of these equal.
TEST(ChooseExperts, ABiasChoosesInFloat32AndWeighsNothing) {
  const RoutingRule rule{.scores = Scores::kSigmoid, .chosen = 2, .scale = 2.5f};
  const Choice choice = Choose(rule, {0, 0, 0, 0}, {6.900f, 6.904f, 6.902f, 6.901f});
  EXPECT_EQ(choice.experts, (Ids{1, 2}));
  EXPECT_FLOAT_EQ(choice.weights[0], 1.25f);
  EXPECT_FLOAT_EQ(choice.weights[1], 1.25f);
}

TEST(ChooseExperts, OnlyTheBestGroupsAreOpen) {
  RoutingRule rule{.chosen = 2, .groups = 3, .groups_used = 1};
  // The best expert is in the last group, the second best is not.
  EXPECT_EQ(Choose(rule, {0, 5, 0, 4, 1, 6}).experts, (Ids{5, 4}));
  rule.best_of_group = 2;  // 5, 4, 7
  EXPECT_EQ(Choose(rule, {0, 5, 0, 4, 1, 6}).experts, (Ids{5, 4}));
  // 5, 4.5 + 1, 3: a group of two good ones wins.
  EXPECT_EQ(Choose(rule, {0, 5, 4.5f, 1, 3, 0}).experts, (Ids{2, 3}));
  rule.groups_used = 3;
  EXPECT_EQ(Choose(rule, {0, 5, 0, 4, 1, 6}).experts, (Ids{5, 1}));
}

TEST(ChooseExperts, PlainWeightsAreSharesOfAll) {
  const Choice plain = Choose({.chosen = 1, .renormalise = false}, {0, std::log(3.0f)});
  EXPECT_FLOAT_EQ(plain.weights[0], 0.75f);
  EXPECT_FLOAT_EQ(Choose({.chosen = 1}, {0, std::log(3.0f)}).weights[0], 1.0f);
}

TEST(Moe, AProgramWhoseMixtureDoesNotAgreeIsNamed) {
  const auto error = [](const std::function<void(MoeOp&, StepProgram&)>& spoil) {
    WeightStore store(40);
    StepProgram program = MakeProgram(ShapeOf({.chosen = 2}, 6), store);
    for (Op& op : program.ops) {
      if (auto* moe = std::get_if<MoeOp>(&op)) spoil(*moe, program);
    }
    return CheckProgram(program);
  };
  EXPECT_EQ(error([](MoeOp&, StepProgram&) {}), "");
  EXPECT_NE(error([](MoeOp& op, StepProgram&) {
              op.rule.chosen = 7;
            }).find("(moe): 7 of 6 experts cannot be chosen"),
            std::string::npos);
  EXPECT_NE(error([](MoeOp& op, StepProgram&) { op.rule.groups = 4; }).find("groups"),
            std::string::npos);
  EXPECT_NE(error([](MoeOp& op, StepProgram&) { op.experts.pop_back(); }).find("router"),
            std::string::npos);
  EXPECT_NE(error([](MoeOp& op, StepProgram&) {
              op.all_experts = 6;
              op.first_expert = 1;
            }).find("experts that the router does not know"),
            std::string::npos);
  EXPECT_NE(error([](MoeOp& op, StepProgram&) {
              op.experts[3].down = op.experts[3].gate_up;
            }).find("down"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::kernels::test
