// The screen of the head changes no token: greedy rows of every kind against the whole product.
#include "kernels/cpu/head_screen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_program.h"
#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

constexpr int kWidth = 96;
constexpr int kIds = 8192 + 37;  // more than a screen needs, and no whole panels

// Hidden states are the rows of a table, by position.
struct Bed {
  explicit Bed(DType type, int states) : store(17) {
    program.vocab_size = kIds;
    program.hidden_size = kWidth;
    program.max_positions = states;
    program.heads = program.kv_heads = 1;
    program.head_dim = 16;
    program.weights = {store.RandomWeight(DType::kF32, states, kWidth, 1.0f),
                       store.RandomWeight(type, kIds, kWidth, 1.0f)};
    program.buffers = {{"x", kWidth}, {"h", kWidth, true}, {"logits", 0, true}};
    program.buffers.back().width = static_cast<int>(VocabularyOf(program).width);
    EmbedOp embed;
    embed.positions = 0;
    embed.out = 0;
    LogitsOp logits;
    logits.head = 1;
    logits.in = 1;
    logits.out = 2;
    GatherRowsOp gather;
    gather.in = 0;
    gather.out = 1;
    SampleOp sample;
    sample.logits = 2;
    program.ops = {embed, gather, logits, sample};
  }

  float* State(int index) { return Row(program.weights[0], index); }
  float* Head(int id) { return Row(program.weights[1], id); }  // of float32 alone
  static float* Row(Weight& weight, int row) {
    return reinterpret_cast<float*>(const_cast<std::byte*>(weight.parts.front().Row(row)));
  }

  WeightStore store;
  StepProgram program;
};

class Machine {
 public:
  Machine(const StepProgram& program, const CpuOptions& cpu) {
    std::string error;
    backend_ = MakeCpuBackend(cpu, error);
    ProgramOptions options;
    options.kv = DealLayers({}, KvShapeOf(program, 16, KvType::kF32), {});
    options.max_tokens = 128;
    options.max_samples = 48;  // 60 rows are two slices
    estimate = backend_->EstimateWeightBytes(program);
    loaded_ = backend_->Load(program, options);
  }

  std::vector<SampleOutput> Run(const std::vector<int32_t>& states,
                                const std::vector<SampleRow>& rows) {
    std::vector<SampleOutput> outputs(rows.size());
    loaded_->Run(BatchOf(states, rows, outputs));
    return outputs;
  }
  Logits AllLogits(const std::vector<int32_t>& states) {
    std::vector<SampleRow> rows(states.size());
    std::vector<SampleOutput> outputs(rows.size());
    std::vector<float> flat(states.size() * kIds);
    loaded_->RunWithLogits(BatchOf(states, rows, outputs), flat);
    Logits logits;
    for (size_t i = 0; i < states.size(); ++i) {
      const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(i * kIds);
      logits.emplace_back(begin, begin + kIds);
    }
    return logits;
  }
  int64_t WeightBytes() const { return loaded_->WeightBytes(); }
  int64_t ScreenedRows() const {
    return dynamic_cast<const cpu::CpuProgram&>(*loaded_).ScreenedRows();
  }

  int64_t estimate = 0;

 private:
  StepBatch BatchOf(const std::vector<int32_t>& states, const std::vector<SampleRow>& rows,
                    std::vector<SampleOutput>& outputs) {
    sampled_.clear();
    for (size_t i = 0; i < states.size(); ++i) sampled_.push_back(static_cast<int32_t>(i));
    tokens_.assign(states.size(), 0);
    rows_.assign(1, BatchRow());
    rows_.front().token_count = static_cast<int>(states.size());
    StepBatch batch;
    batch.tokens = tokens_;
    batch.positions = states;
    batch.rows = rows_;
    batch.sampled_tokens = sampled_;
    batch.sample_rows = rows;
    batch.sample_outputs = outputs;
    return batch;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<LoadedProgram> loaded_;
  std::vector<int32_t> tokens_, sampled_;
  std::vector<BatchRow> rows_;
};

SampleRow Greedy() {
  SampleRow row;
  row.temperature = 0.0f;
  return row;
}

int32_t FirstLargest(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<int32_t> FirstStates(int count) {
  std::vector<int32_t> states;
  for (int i = 0; i < count; ++i) states.push_back(i);
  return states;
}

void ExpectTokensOfTheWholeProduct(Machine& machine, int count, const std::string& what) {
  const std::vector<int32_t> states = FirstStates(count);
  const Logits logits = machine.AllLogits(states);
  const auto outputs =
      machine.Run(states, std::vector<SampleRow>(static_cast<size_t>(count), Greedy()));
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(outputs[i].token, FirstLargest(logits[i])) << what << " row " << i << " of " << count;
  }
}

TEST(HeadScreen, TokensAreThoseOfTheWholeProduct) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    Bed bed(type, 60);
    for (const std::string& isa : AvailableIsas()) {
      Machine machine(bed.program, {.threads = 2, .isa = isa});
      for (const int count : {1, 3, 17, 60}) {
        ExpectTokensOfTheWholeProduct(machine, count, std::string(DTypeName(type)) + " " + isa);
      }
    }
  }
}

// A checkpoint's head is a float one, as a rule, where its layers are multiplied in int8.
TEST(HeadScreen, WorksBesideInt8Products) {
  Bed bed(DType::kBF16, 40);
  for (const std::string& isa : AvailableIsas()) {
    Machine machine(bed.program, {.threads = 2, .isa = isa, .activation_dtype = "int8"});
    EXPECT_EQ(machine.WeightBytes(), machine.estimate);
    ExpectTokensOfTheWholeProduct(machine, 40, isa);
    EXPECT_GT(machine.ScreenedRows(), 0) << isa;
  }
}

// Equal logits, and logits that are one rounding apart: far less than what int8 can tell.
TEST(HeadScreen, TellsEqualAndNearlyEqualLogitsApart) {
  Bed bed(DType::kF32, 12);
  for (int state = 0; state < 12; ++state) {
    for (int i = 0; i < 40; ++i) {
      const int id = (state * 997 + i * 131) % kIds;
      for (int k = 0; k < kWidth; ++k) bed.Head(id)[k] = bed.State(state)[k] * 0.9f;
      if (i % 3 == 1) bed.Head(id)[i % kWidth] = std::nextafter(bed.Head(id)[i % kWidth], 1e9f);
      if (i % 3 == 2) bed.Head(id)[i % kWidth] = std::nextafter(bed.Head(id)[i % kWidth], -1e9f);
    }
  }
  for (const std::string& isa : AvailableIsas()) {
    Machine machine(bed.program, {.threads = 2, .isa = isa});
    ExpectTokensOfTheWholeProduct(machine, 12, isa);
  }
}

TEST(HeadScreen, TakesAnyMagnitude) {
  Bed bed(DType::kF32, 12);
  const float sizes[] = {1e-44f, 1e-38f, 1e-30f, 1e-20f, 1e-8f, 1.0f, 1e8f, 1e18f, 1e30f, 0.0f};
  for (int state = 0; state < 10; ++state) {
    for (int k = 0; k < kWidth; ++k) bed.State(state)[k] *= sizes[state];
  }
  for (int k = 0; k < kWidth; ++k) bed.State(10)[k] = k == 5 ? 1e4f : 1e-4f;  // one outlier
  for (int id = 0; id < kIds; id += 7) {
    const float size = std::exp2(static_cast<float>(id % 41 - 30));
    for (int k = 0; k < kWidth; ++k) bed.Head(id)[k] *= size;
  }
  for (const std::string& isa : AvailableIsas()) {
    Machine machine(bed.program, {.threads = 1, .isa = isa});
    ExpectTokensOfTheWholeProduct(machine, 12, isa);
  }
}

// A state that is no number fails its own row alone, and a head with an infinite weight is used
// without a screen.
TEST(HeadScreen, WhatIsNotFiniteStaysWithItsRow) {
  Bed bed(DType::kF32, 4);
  bed.State(1)[3] = std::numeric_limits<float>::quiet_NaN();
  Machine machine(bed.program, {.threads = 2});
  const Logits logits = machine.AllLogits({0, 2, 3});
  for (int round = 0; round < 2; ++round) {  // the second one is in the pause after the first
    const auto outputs = machine.Run({0, 1, 2, 3}, std::vector<SampleRow>(4, Greedy()));
    EXPECT_TRUE(outputs[1].not_a_number);
    EXPECT_EQ(outputs[0].token, FirstLargest(logits[0]));
    EXPECT_EQ(outputs[2].token, FirstLargest(logits[1]));
    EXPECT_EQ(outputs[3].token, FirstLargest(logits[2]));
  }
  Bed infinite(DType::kF32, 4);
  infinite.Head(100)[0] = std::numeric_limits<float>::infinity();
  Machine plain(infinite.program, {.threads = 2});
  EXPECT_LT(plain.WeightBytes(), plain.estimate);
  const auto outputs = plain.Run({0, 1, 2, 3}, std::vector<SampleRow>(4, Greedy()));
  for (const SampleOutput& output : outputs) {
    EXPECT_TRUE(output.not_a_number || output.token >= 0);
  }
}

// Rows that ask for more than the largest logit get what they get alone, whoever is beside them.
TEST(HeadScreen, OtherRowsOfTheStepKeepTheirResults) {
  Bed bed(DType::kF32, 60);
  std::vector<SampleRow> rows(60, Greedy());
  const TokenBias bias[] = {{5, 1000.0f}};
  std::vector<uint32_t> mask(kIds / 32 + 1, 0);
  mask[3] = 1u << 9;
  for (int i = 0; i < 60; i += 5) {
    rows[i].logprobs = i % 2 == 0 ? 3 : 0;
    if (i % 4 == 0) rows[i].temperature = 1.0f;
    if (i % 4 == 1) rows[i].logit_bias = bias;
    if (i % 4 == 2) rows[i].allowed_mask = mask;
    rows[i].seed = static_cast<uint64_t>(i);
  }
  Machine machine(bed.program, {.threads = 2});
  const auto together = machine.Run(FirstStates(60), rows);
  for (int i = 0; i < 60; ++i) {
    const SampleOutput alone = machine.Run({i}, {rows[i]}).front();
    EXPECT_EQ(together[i].token, alone.token) << i;
    EXPECT_EQ(together[i].logprob, alone.logprob) << i;
    EXPECT_EQ(together[i].top_count, alone.top_count) << i;
    if (!rows[i].logit_bias.empty()) {
      EXPECT_EQ(together[i].token, 5);
    }
    if (!rows[i].allowed_mask.empty()) {
      EXPECT_EQ(together[i].token, 3 * 32 + 9);
    }
  }
}

// Few greedy rows beside a row that reads the whole head share that product: a screen would read a
// copy of the head on top.
TEST(HeadScreen, FewRowsBesideOthersShareTheWholeProduct) {
  Bed bed(DType::kF32, 33);
  Machine machine(bed.program, {.threads = 2});
  std::vector<SampleRow> rows(17, Greedy());
  rows[4].temperature = 1.0f;
  machine.Run(FirstStates(17), rows);
  const int64_t sixteen = machine.ScreenedRows();
  EXPECT_GT(sixteen, 8);
  rows.pop_back();
  const auto outputs = machine.Run(FirstStates(16), rows);
  EXPECT_EQ(machine.ScreenedRows(), sixteen) << "15 rows beside another were screened";
  const Logits logits = machine.AllLogits(FirstStates(16));
  for (int i = 0; i < 16; ++i) {
    if (i != 4) {
      EXPECT_EQ(outputs[i].token, FirstLargest(logits[i])) << i;
    }
  }
  rows[4] = Greedy();
  machine.Run(FirstStates(16), rows);
  EXPECT_GT(machine.ScreenedRows(), sixteen + 8) << "greedy rows alone were not screened";
}

// Heads that are all alike leave nothing to screen: the whole product does it.
TEST(HeadScreen, FlatLogitsNeedTheWholeProduct) {
  Bed bed(DType::kF32, 3);
  for (int id = 1; id < kIds; ++id) std::copy_n(bed.Head(0), kWidth, bed.Head(id));
  Machine machine(bed.program, {.threads = 2});
  for (int round = 0; round < 20; ++round) {
    for (const SampleOutput& output : machine.Run({0, 1, 2}, std::vector<SampleRow>(3, Greedy()))) {
      EXPECT_EQ(output.token, 0);
    }
  }
}

TEST(HeadScreen, AProgramCanDoWithoutIt) {
  Bed bed(DType::kBF16, 17);
  const Machine with(bed.program, {.threads = 2});
  bed.program.screen_head = false;
  Machine without(bed.program, {.threads = 2});
  EXPECT_EQ(without.WeightBytes(), without.estimate);
  EXPECT_EQ(with.estimate - without.estimate, cpu::HeadScreen::Bytes(bed.program.weights[1]));
  ExpectTokensOfTheWholeProduct(without, 17, "without");
}

TEST(HeadScreen, TheUnitsItNamesAreFewAndItsMemoryIsCounted) {
  Bed bed(DType::kF32, 40);
  for (int state = 0; state < 40; ++state) {  // each has a token that stands out, as models have
    for (int k = 0; k < kWidth; ++k) bed.Head(200 * state)[k] += 0.3f * bed.State(state)[k];
  }
  Machine machine(bed.program, {.threads = 2});
  EXPECT_EQ(machine.WeightBytes(), machine.estimate);
  const Weight& head = bed.program.weights[1];
  ASSERT_TRUE(cpu::HeadScreen::Suits(head));
  cpu::HeadScreen screen(head);
  std::vector<std::byte> unused;
  for (int i = 0; i < screen.copy().PanelCount(); ++i) {
    const cpu::Panel& panel = screen.copy().panels[static_cast<size_t>(i)];
    screen.Pack(DType::kF32, cpu::RowsOf(head.parts.front(), panel, unused), i);
  }
  ASSERT_TRUE(screen.Finish());
  EXPECT_EQ(screen.bytes(), cpu::HeadScreen::Bytes(head));
  cpu::ScreenScratch scratch;
  screen.Reserve(scratch);
  const std::vector<int32_t> states = FirstStates(40);
  const Logits logits = machine.AllLogits(states);
  int64_t units = 0;
  for (int state = 0; state < 40; ++state) {
    // Exact logits are approximations within any bound.
    const float* const exact = logits[state].data();
    const int64_t leader = screen.FindLeader(exact, scratch);
    EXPECT_EQ(leader, FirstLargest(logits[state]));
    ASSERT_TRUE(screen.FindUnits(exact, leader, screen.BoundOf(bed.State(state)), scratch));
    units += static_cast<int64_t>(scratch.units.size());
  }
  EXPECT_LE(units, 40 * 3);
}

}  // namespace
}  // namespace quire::kernels::test
