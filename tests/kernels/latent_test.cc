// Multi-head latent attention: against float64 for every type of page, the same bits in any company
// and at any block size, and the bytes that a token takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "kernels/cpu/cpu_program.h"
#include "kernels/ops.h"
#include "tests/kernels/double_model.h"
#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

struct LatentCase {
  const char* name;
  int heads = 4;
  int nope = 24;
  int rope = 16;
  int rank = 48;
  int value = 20;
  bool pairs = true;
  DType type = DType::kF32;
};

// Odd counts, a rank that is no multiple of 16, one head, more heads than one task takes.
const LatentCase kCases[] = {
    {"four_heads"},
    {"halves", 3, 16, 8, 40, 32, false},
    {"one_head", 1, 8, 32, 16, 8},
    {"many_heads", 60, 8, 8, 32, 4},
    {"quantised", 2, 32, 16, 64, 16, true, DType::kQ8_0},
};

// Appends to a program what its latents need.
class LatentMaker {
 public:
  LatentMaker(const LatentCase& of, WeightStore& store) : of_(of), store_(store) {
    program_.family = "test";
    program_.vocab_size = kVocabulary;
    program_.hidden_size = kHidden;
    program_.max_positions = 1024;
    program_.layer_windows = {0, 0};
    program_.heads = of.heads;
    program_.kv_heads = 1;
    program_.head_dim = of.rank + of.rope;
    program_.latents = true;
    Rope rope;
    rope.rotary_dim = of.rope;
    rope.attention_factor = 1.25;
    for (int i = 0; i < of.rope / 2; ++i) {
      rope.inverse_frequency.push_back(std::pow(100.0, -2.0 * i / of.rope));
    }
    program_.ropes.push_back(rope);
  }

  StepProgram Make() {
    const BufferId x = Buffer("x", kHidden), h = Buffer("h", kHidden);
    const BufferId queries = Buffer("queries", of_.heads * (of_.nope + of_.rope));
    const BufferId latents = Buffer("latents", of_.rank + of_.rope);
    const BufferId absorbed = Buffer("absorbed", of_.heads * (of_.rank + of_.rope));
    const BufferId summed = Buffer("summed", of_.heads * of_.rank);
    const BufferId attended = Buffer("attended", of_.heads * of_.value);
    EmbedOp embed;
    embed.table = Matrix(kVocabulary, kHidden, 1.0f);
    embed.out = x;
    program_.ops.emplace_back(embed);
    for (int layer = 0; layer < 2; ++layer) {
      Norm(x, h);
      Linear(of_.heads * (of_.nope + of_.rope), h, queries, false);
      Linear(of_.rank + of_.rope, h, latents, false);
      LatentAppendOp append{queries,  latents, layer, of_.heads, of_.nope + of_.rope,
                            of_.rank, of_.rope};
      append.norm = Add(store_.RandomVector(of_.rank, 1.0f, 0.1f));
      append.rope = 0;
      append.pairs = of_.pairs;
      program_.ops.emplace_back(append);
      Heads(of_.rank, of_.nope, queries, absorbed);
      const float scale = 2.0f / std::sqrt(static_cast<float>(of_.nope + of_.rope));
      program_.ops.emplace_back(
          LatentAttentionOp{absorbed, summed, layer, of_.heads, of_.rank, of_.rope, scale});
      Heads(of_.value, of_.rank, summed, attended);
      Linear(kHidden, attended, x, true);
    }
    Norm(x, h);
    const BufferId last = Buffer("last", kHidden, true);
    const BufferId logits = Buffer("logits", kVocabulary, true);
    program_.ops.emplace_back(GatherRowsOp{h, last});
    LogitsOp head;
    head.head = embed.table;
    head.in = last;
    head.out = logits;
    program_.ops.emplace_back(head);
    program_.ops.emplace_back(SampleOp{logits});
    return program_;
  }

  static constexpr int kVocabulary = 90;

 private:
  static constexpr int kHidden = 64;

  BufferId Buffer(const char* name, int width, bool sampled = false) {
    program_.buffers.push_back({name, width, sampled});
    return static_cast<int>(program_.buffers.size()) - 1;
  }
  WeightId Add(Weight weight) {
    program_.weights.push_back(std::move(weight));
    return static_cast<int>(program_.weights.size()) - 1;
  }
  WeightId Matrix(int rows, int cols, float size) {
    return Add(store_.RandomWeight(cols % 32 == 0 ? of_.type : DType::kF32, rows, cols, size));
  }
  void Norm(BufferId in, BufferId out) {
    NormOp op;
    op.weight = Add(store_.RandomVector(kHidden, 1.0f, 0.1f));
    op.in = in;
    op.out = out;
    program_.ops.emplace_back(op);
  }
  void Linear(int rows, BufferId in, BufferId out, bool accumulate) {
    const int cols = program_.buffers[in].width;
    LinearOp op;
    op.weight = Matrix(rows, cols, 1.0f / std::sqrt(static_cast<float>(cols)));
    op.accumulate = accumulate;
    op.in = in;
    op.out = out;
    program_.ops.emplace_back(op);
  }
  void Heads(int rows, int cols, BufferId in, BufferId out) {
    HeadLinearOp op;
    for (int head = 0; head < of_.heads; ++head) {
      op.weights.push_back(Matrix(rows, cols, 1.0f / std::sqrt(static_cast<float>(cols))));
    }
    op.in = in;
    op.out = out;
    program_.ops.emplace_back(op);
  }

  const LatentCase& of_;
  WeightStore& store_;
  StepProgram program_;
};

StepProgram MakeLatent(const LatentCase& of, WeightStore& store) {
  return LatentMaker(of, store).Make();
}

std::vector<int32_t> LatentTokens(int count, uint32_t seed) {
  return RandomTokens(count, LatentMaker::kVocabulary, seed);
}

class Latents : public ::testing::TestWithParam<LatentCase> {};

TEST_P(Latents, AgreeWithFloat64OnEveryInstructionSet) {
  WeightStore store(51);
  const StepProgram program = MakeLatent(GetParam(), store);
  ASSERT_EQ(CheckProgram(program), "");
  const std::vector<int32_t> tokens = LatentTokens(75, 52);
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

TEST_P(Latents, AgreeWithFloat64InEveryTypeOfPage) {
  WeightStore store(53);
  const StepProgram program = MakeLatent(GetParam(), store);
  const std::vector<int32_t> tokens = LatentTokens(70, 54);
  const std::pair<KvType, double> types[] = {
      {KvType::kF16, 2e-3}, {KvType::kBF16, 1e-2}, {KvType::kFp8, 1e-1}};
  for (const auto& [type, tolerance] : types) {
    SCOPED_TRACE(KvTypeName(type));
    const auto wanted = DoubleModel(program, type).Run(tokens);
    Logits first;
    for (const std::string& isa : AvailableIsas()) {
      PagedRunner runner(program, {.cpu = {.threads = 2, .isa = isa}, .kv_type = type});
      const Logits got = runner.Step({{0, 0, tokens}});
      EXPECT_LT(WorstError(got, wanted), tolerance) << isa;
      if (first.empty()) first = got;
      EXPECT_EQ(got, first) << isa << " has other bits than the reference";
    }
  }
}

// A token's bits do not depend on chunk, neighbours or threads, in prefill and in decode alike, on
// both sides of a border of spans.
TEST_P(Latents, HaveTheSameBitsInAnyCompany) {
  WeightStore store(55);
  const StepProgram program = MakeLatent(GetParam(), store);
  const int count = GetParam().heads > 20 ? 130 : 600;
  const std::vector<int32_t> tokens = LatentTokens(count, 56);
  const std::vector<int32_t> others = LatentTokens(64, 57);
  PagedRunner whole(program, {.cpu = {.threads = 1}});
  const Logits wanted = whole.Step({{0, 0, tokens}});
  for (const int chunk : {1, 2, 7, 16, 17, 31, 33, 64, 512}) {
    // The end alone, where keys of all spans meet; what lies before it in one chunk.
    const int start = std::max(0, count - 8 * chunk);
    PagedRunner runner(program, {.cpu = {.threads = 3}, .sequences = 2});
    Logits got;
    if (start > 0) {
      got = runner.Step({{0, 0, {tokens.begin(), tokens.begin() + start}}});
    }
    const Logits rest = RunInChunks(runner, tokens, chunk, others, start);
    got.insert(got.end(), rest.begin(), rest.end());
    EXPECT_EQ(got, wanted) << "chunk " << chunk;
  }
}

TEST_P(Latents, HaveTheSameBitsInPagesOfAnySize) {
  WeightStore store(58);
  const StepProgram program = MakeLatent(GetParam(), store);
  const std::vector<int32_t> tokens = LatentTokens(100, 59);
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kFp8}) {
    Logits first;
    for (const int block_size : {16, 32, 64}) {
      PagedRunner runner(program,
                         {.cpu = {.threads = 2}, .block_size = block_size, .kv_type = type});
      const Logits got = runner.Step({{0, 0, tokens}});
      if (first.empty()) first = got;
      EXPECT_EQ(got, first) << KvTypeName(type) << " in blocks of " << block_size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Latent, Latents, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// What turns twice, or not with its own position, is nothing that a tolerance hides.
TEST(LatentOracle, SeesARotationThatIsApplied) {
  WeightStore store(60);
  StepProgram program = MakeLatent(kCases[0], store);
  const std::vector<int32_t> tokens = LatentTokens(40, 61);
  const auto wanted = DoubleModel(program).Run(tokens);
  for (double& frequency : program.ropes[0].inverse_frequency) frequency *= 2.0;
  PagedRunner twice(program, {});
  EXPECT_GT(WorstError(twice.Step({{0, 0, tokens}}), wanted), 1e-2);
  WeightStore same(60);
  program = MakeLatent(kCases[0], same);
  for (Op& op : program.ops) {
    if (auto* append = std::get_if<LatentAppendOp>(&op)) append->pairs = false;
  }
  PagedRunner halves(program, {});
  EXPECT_GT(WorstError(halves.Step({{0, 0, tokens}}), wanted), 1e-2);
}

// DeepSeek's 576 numbers: key and value are one row.
TEST(LatentPages, HoldOneRowForEachToken) {
  KvShape shape{16, 1, 576, KvType::kBF16, {}, true};
  EXPECT_EQ(SlotOf(shape).bytes, 16 * 576 * 2);
  EXPECT_EQ(DealLayers({0, 0, 0}, shape).page_bytes, 3 * 16 * 576 * 2);
  shape.type = KvType::kFp8;
  EXPECT_EQ(SlotOf(shape).bytes, 16 * (576 + 4));
  shape.latents = false;
  EXPECT_EQ(SlotOf(shape).bytes, 2 * 16 * (576 + 4));
}

TEST(LatentTasks, TakeAsManyHeadsAsLeaveEachThreadOne) {
  EXPECT_EQ(cpu::LatentHeadsOfTask(16, 1, 1), 16);
  EXPECT_EQ(cpu::LatentHeadsOfTask(16, 1, 2), 8);
  EXPECT_EQ(cpu::LatentHeadsOfTask(16, 512, 2), 16);
  EXPECT_EQ(cpu::LatentHeadsOfTask(128, 512, 2), 32);
  EXPECT_EQ(cpu::LatentHeadsOfTask(16, 1, 64), 4);
  EXPECT_EQ(cpu::LatentHeadsOfTask(7, 1, 1), 7);
}

TEST(LatentPrograms, ThatDoNotAgreeAreNamed) {
  const auto error = [](const std::function<void(StepProgram&, Op&)>& spoil) {
    WeightStore store(62);
    StepProgram program = MakeLatent(kCases[0], store);
    for (Op& op : program.ops) spoil(program, op);
    return CheckProgram(program);
  };
  const auto expect = [&error](const std::function<void(StepProgram&, Op&)>& spoil,
                               const char* saying) {
    EXPECT_NE(error(spoil).find(saying), std::string::npos) << error(spoil);
  };
  EXPECT_EQ(error([](StepProgram&, Op&) {}), "");
  expect([](StepProgram& program, Op&) { program.latents = false; }, "pages hold no latents");
  expect([](StepProgram& program, Op&) { program.layer_windows[1] = 8; }, "latents have no window");
  expect([](StepProgram& program, Op&) { program.ropes[0].rotary_dim = 8; }, "frequencies");
  expect(
      [](StepProgram&, Op& op) {
        if (auto* heads = std::get_if<HeadLinearOp>(&op)) heads->weights.pop_back();
      },
      "(head_linear): width of in");
  expect(
      [](StepProgram&, Op& op) {
        if (auto* attention = std::get_if<LatentAttentionOp>(&op)) attention->rank = 40;
      },
      "(latent_attention): width of queries");
}

}  // namespace
}  // namespace quire::kernels::test
