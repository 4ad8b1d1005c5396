// Attention over pages: contexts of several spans, windows, groups of heads, block sizes and page
// types, each against float64 and bit for bit between one prefill, chunks, single tokens and mixed
// batches.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_isa.h"
#include "tests/kernels/double_model.h"
#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

constexpr int kContext = 1100;  // two spans and a part, ending inside a tile and a page

ModelShape Small(int heads, int kv_heads, int window) {
  ModelShape shape;
  shape.layers = 2;
  shape.hidden = 32;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = 16;
  shape.inner = 32;
  shape.vocabulary = 40;
  shape.windows = {window, 0};
  return shape;
}

PagedRunner::Options Options(int block_size, KvType type, const char* isa) {
  PagedRunner::Options options;
  options.cpu = {.threads = 2, .isa = isa};
  options.block_size = block_size;
  options.kv_type = type;
  options.max_context = kContext;
  options.max_tokens = kContext;
  return options;
}

// Runs the tokens in pieces of the given sizes, the last one repeated; what is behind a window is
// dropped.
Logits InPieces(const StepProgram& program, const PagedRunner::Options& options,
                const std::vector<int32_t>& tokens, std::vector<int> sizes) {
  PagedRunner runner(program, options);
  Logits logits;
  size_t next = 0;
  for (int begin = 0; begin < static_cast<int>(tokens.size());) {
    const int size = sizes[std::min(next++, sizes.size() - 1)];
    const int end = std::min<int>(static_cast<int>(tokens.size()), begin + size);
    runner.DropBehindWindow(0, begin);
    const Logits part = runner.Step({{0, begin, {tokens.begin() + begin, tokens.begin() + end}}});
    logits.insert(logits.end(), part.begin(), part.end());
    begin = end;
  }
  return logits;
}

struct Case {
  int heads;
  int kv_heads;
  int window;
  int block_size;
  bool sinks = false;
};

class Attention : public ::testing::TestWithParam<Case> {};

TEST_P(Attention, AgreesWithFloat64AndInAnyPieces) {
  const Case c = GetParam();
  WeightStore store(41);
  ModelShape shape = Small(c.heads, c.kv_heads, c.window);
  shape.sinks = c.sinks;
  const StepProgram program = MakeProgram(shape, store);
  const std::vector<int32_t> tokens = RandomTokens(kContext, 40, 42);
  const auto wanted = DoubleModel(program).Run(tokens);
  const auto options = Options(c.block_size, KvType::kF32, "auto");
  const Logits whole = InPieces(program, options, tokens, {kContext});
  EXPECT_LT(WorstError(whole, wanted), 2e-5);
  EXPECT_EQ(InPieces(program, options, tokens, {1000, 1}), whole);
  EXPECT_EQ(InPieces(program, options, tokens, {5, 507, 1, 63, 129}), whole);
  EXPECT_EQ(InPieces(program, Options(c.block_size, KvType::kF32, "reference"), tokens, {400}),
            whole);
  EXPECT_EQ(InPieces(program, Options(c.block_size, KvType::kF32, "avx2"), tokens, {333}), whole);
}

INSTANTIATE_TEST_SUITE_P(Groups, Attention,
                         ::testing::Values(Case{2, 2, 100, 16}, Case{4, 1, 512, 16},
                                           Case{8, 1, 70, 32}, Case{8, 2, 0, 64},
                                           Case{4, 2, 0, 16, true}, Case{6, 1, 20, 16, true}));

struct PageCase {
  KvType type;
  int block_size;
  double rounded;  // error against float64 with keys and values rounded as the format says
  double exact;    // and against float64 that rounds nothing
};

class AttentionPages : public ::testing::TestWithParam<PageCase> {};

// Where a float32 key lies near the middle of two codes its neighbour in float64 may round
// otherwise: the error against rounded ones is that of a few such elements.
TEST_P(AttentionPages, AreAsTheirFormatSaysAndGiveTheSameBitsInPieces) {
  const PageCase& c = GetParam();
  WeightStore store(43);
  ModelShape shape = Small(4, 2, 100);
  shape.head_dim = 24;  // padded to 32
  const StepProgram program = MakeProgram(shape, store);
  const std::vector<int32_t> tokens = RandomTokens(600, 40, 44);
  const auto options = Options(c.block_size, c.type, "auto");
  const Logits whole = InPieces(program, options, tokens, {600});
  const double rounded = WorstError(whole, DoubleModel(program, c.type).Run(tokens));
  const double exact = WorstError(whole, DoubleModel(program).Run(tokens));
  EXPECT_LT(rounded, c.rounded);
  EXPECT_LT(exact, c.exact);
  EXPECT_LT(4 * rounded, exact) << "the format does not explain the error";
  EXPECT_EQ(InPieces(program, options, tokens, {570, 1}), whole);
  EXPECT_EQ(InPieces(program, Options(c.block_size, c.type, "reference"), tokens, {77}), whole);
  EXPECT_EQ(InPieces(program, Options(c.block_size, c.type, "avx2"), tokens, {600}), whole);
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionPages,
                         ::testing::Values(PageCase{KvType::kBF16, 16, 2e-3, 2e-2},
                                           PageCase{KvType::kF16, 32, 3e-4, 3e-3},
                                           PageCase{KvType::kFp8, 16, 1e-2, 2e-1},
                                           PageCase{KvType::kFp8, 64, 1e-2, 2e-1}),
                         [](const auto& info) {
                           return std::string(KvTypeName(info.param.type)) + "by" +
                                  std::to_string(info.param.block_size);
                         });

struct HeadsCase {
  int heads;
  int kv_heads;
  KvType type;
  bool sinks = false;
};

class AttentionOfHeads : public ::testing::TestWithParam<HeadsCase> {};

// Many rows in decode give a task several KV heads, one row gives it one: the same bits.
TEST_P(AttentionOfHeads, TogetherAsAlone) {
  const HeadsCase& c = GetParam();
  constexpr int kRows = 16;
  WeightStore store(45);
  ModelShape shape = Small(c.heads, c.kv_heads, 70);
  shape.head_dim = 24;  // padded to 32
  shape.sinks = c.sinks;
  const StepProgram program = MakeProgram(shape, store);
  const auto run = [&](const char* isa, int threads, bool together) {
    PagedRunner::Options options = Options(16, c.type, isa);
    options.cpu.threads = threads;
    options.sequences = kRows;
    PagedRunner runner(program, options);
    std::vector<PagedRunner::Piece> pieces;
    for (int row = 0; row < kRows; ++row) {
      // Ends on and beside the borders of tiles and spans.
      const int length = row == 0 ? 511 : 61 + 9 * row;
      runner.Step({{row, 0, RandomTokens(length, 40, 46 + row)}});
      pieces.push_back({row, length, {row}});
    }
    if (together) return runner.Step(pieces);
    Logits logits;
    for (const PagedRunner::Piece& piece : pieces) logits.push_back(runner.Step({piece})[0]);
    return logits;
  };
  const Logits alone = run("reference", 1, false);
  for (const char* isa : {"reference", "avx2", "auto"}) {
    for (const int threads : {1, 3}) {
      EXPECT_EQ(run(isa, threads, true), alone) << isa << ", " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, AttentionOfHeads,
                         ::testing::Values(HeadsCase{16, 8, KvType::kF16},
                                           HeadsCase{8, 8, KvType::kFp8},
                                           HeadsCase{12, 6, KvType::kF32, true},
                                           HeadsCase{40, 8, KvType::kBF16},
                                           HeadsCase{10, 10, KvType::kF16, true}));

// Keys and values far beyond float16 are stored as its largest, on every instruction set, and an
// answer is still made of numbers.
TEST(AttentionFloat16, WhatIsBeyondItsRangeIsItsLargest) {
  WeightStore store(59);
  StepProgram program = MakeProgram(Small(4, 2, 0), store);
  for (Op& op : program.ops) {
    auto* norm = std::get_if<NormOp>(&op);
    if (norm == nullptr) continue;
    norm->weight_offset = 1e6f;
    break;
  }
  const std::vector<int32_t> tokens = RandomTokens(70, 40, 60);
  const Logits whole = InPieces(program, Options(16, KvType::kF16, "auto"), tokens, {70});
  for (const auto& row : whole) {
    for (const float logit : row) ASSERT_TRUE(std::isfinite(logit));
  }
  for (const std::string& isa : AvailableIsas()) {
    EXPECT_EQ(InPieces(program, Options(16, KvType::kF16, isa.c_str()), tokens, {33, 37}), whole)
        << isa;
  }
}

TEST(AttentionFp8, NeighboursInABatchChangeNothing) {
  WeightStore store(53);
  const StepProgram program = MakeProgram(Small(4, 2, 60), store);
  auto options = Options(16, KvType::kFp8, "auto");
  options.sequences = 2;
  options.max_context = 128;
  const std::vector<int32_t> a = RandomTokens(90, 40, 1);
  const std::vector<int32_t> b = RandomTokens(70, 40, 2);
  const Logits alone_a = InPieces(program, options, a, {90});
  PagedRunner runner(program, options);
  runner.Step({{1, 0, {b.begin(), b.begin() + 69}}, {0, 0, {a.begin(), a.begin() + 89}}});
  EXPECT_EQ(runner.Step({{1, 69, {b[69]}}, {0, 89, {a[89]}}})[1], alone_a[89]);
}

TEST(AttentionBatch, NeighboursInABatchChangeNothing) {
  WeightStore store(47);
  const StepProgram program = MakeProgram(Small(4, 1, 60), store);
  auto options = Options(16, KvType::kF32, "auto");
  options.sequences = 3;
  options.max_context = 256;
  const std::vector<int32_t> a = RandomTokens(150, 40, 1);
  const std::vector<int32_t> b = RandomTokens(90, 40, 2);
  const Logits alone_a = InPieces(program, options, a, {150});
  const Logits alone_b = InPieces(program, options, b, {90});
  PagedRunner runner(program, options);
  runner.Step({{2, 0, b}});
  const Logits first =
      runner.Step({{0, 0, {a.begin(), a.begin() + 100}}, {1, 0, {b.begin(), b.begin() + 89}}});
  const Logits second = runner.Step({{1, 89, {b[89]}}, {0, 100, {a.begin() + 100, a.end()}}});
  EXPECT_EQ(Logits(first.begin(), first.begin() + 100),
            Logits(alone_a.begin(), alone_a.begin() + 100));
  EXPECT_EQ(second[0], alone_b[89]);
  EXPECT_EQ(Logits(second.begin() + 1, second.end()), Logits(alone_a.begin() + 100, alone_a.end()));
}

TEST(Host, HasAvx512) {
  if (!cpu::HostHas(cpu::Isa::kAvx512)) {
    GTEST_SKIP() << "this host has no AVX-512: its kernels were not tested";
  }
}

}  // namespace
}  // namespace quire::kernels::test
