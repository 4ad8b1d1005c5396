// Ranks that share a vocabulary unevenly: the last one has fewer ids than its logits have columns.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/collectives/shared_group.h"
#include "tests/kernels/cuda/backend/device.h"

namespace quire::golden {
namespace {

// A program of nothing but an embedding and a head, for any number of ranks.
struct UnevenProgram {
  static constexpr int kVocabulary = 257;
  static constexpr int kWidth = 16;

  kernels::StepProgram Of(int rank, int ranks) const {
    kernels::StepProgram program;
    program.family = "uneven";
    program.rank = rank;
    program.ranks = ranks;
    program.vocab_size = kVocabulary;
    program.hidden_size = kWidth;
    program.max_positions = 64;
    program.layer_windows = {0};  // a layer that nobody asks
    program.heads = program.kv_heads = 1;
    program.head_dim = 8;
    const kernels::VocabularySlice slice = kernels::VocabularyOf(program);
    const auto* data = reinterpret_cast<const std::byte*>(values.data() + slice.begin * kWidth);
    kernels::Weight table;
    table.name = "table";
    table.rows = slice.count;
    table.cols = kWidth;
    table.parts = {{kernels::DType::kF32, slice.count, kWidth, data}};
    program.weights = {table};
    program.buffers = {
        {"hidden", kWidth, false}, {"wanted", kWidth, true}, {"logits", slice.width, true}};
    kernels::EmbedOp embed;
    embed.table = 0;
    embed.out = 0;
    kernels::LogitsOp logits;
    logits.head = 0;
    logits.in = 1;
    logits.out = 2;
    program.ops = {embed, kernels::AllReduceOp{0}, kernels::GatherRowsOp{0, 1}, logits,
                   kernels::SampleOp{2}};
    return program;
  }

  // Every id's row is longest in its own direction: the best id after a token is the token.
  std::vector<float> values = [] {
    std::vector<float> all(size_t{kVocabulary} * kWidth);
    for (int id = 0; id < kVocabulary; ++id) {
      double length = 0.0;
      float* row = all.data() + static_cast<ptrdiff_t>(id) * kWidth;
      for (int i = 0; i < kWidth; ++i) {
        row[i] = static_cast<float>((id * 7919 + i * 104'729 + id * i * 31) % 509) - 254.0f;
        length += row[i] * row[i];
      }
      for (int i = 0; i < kWidth; ++i) row[i] *= static_cast<float>(8.0 / std::sqrt(length));
    }
    return all;
  }();
};

struct UnevenStep {
  std::vector<kernels::SampleOutput> outputs;
  std::vector<float> logits;  // of this rank
};

struct UnevenBatch {
  std::vector<int32_t> tokens;
  std::vector<kernels::SampleRow> samples;  // of each
};

void RunUneven(const UnevenProgram& uneven, int rank, kernels::Communicator* communicator,
               const UnevenBatch& wanted, UnevenStep& step) {
  const std::span<const int32_t> tokens = wanted.tokens;
  const int ranks = communicator == nullptr ? 1 : communicator->size();
  const kernels::StepProgram program = uneven.Of(rank, ranks);
  const std::unique_ptr<kernels::Backend> backend = MakeDeviceBackend();
  kernels::ProgramOptions options;
  options.kv = kernels::DealLayers(program.layer_windows, backend->PageShape(program, 16));
  options.page_count = 1;
  options.max_tokens = 64;
  options.communicator = communicator;
  const auto loaded = backend->Load(program, options);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  step.outputs.resize(tokens.size());
  step.logits.resize(tokens.size() * static_cast<size_t>(kernels::VocabularyOf(program).count));
  kernels::StepBatch batch;
  batch.tokens = tokens;
  batch.positions = positions;
  const std::vector<int32_t> pages = {0};
  const std::vector<std::span<const int32_t>> tables = {pages};
  const kernels::BatchRow row{0, static_cast<int>(tokens.size()), 0, tables};
  batch.rows = std::span(&row, 1);
  batch.sampled_tokens = positions;
  batch.sample_rows = wanted.samples;
  batch.sample_outputs = step.outputs;
  loaded->RunWithLogits(batch, step.logits);
  EXPECT_EQ(loaded->Failure(), "");
}

// On as many ranks, which meet in host memory.
std::vector<UnevenStep> RunOnRanks(const UnevenProgram& uneven, const UnevenBatch& wanted,
                                   int ranks) {
  std::string error;
  const auto group = kernels::SharedGroup::Create({ranks, 1 << 16}, error);
  EXPECT_NE(group, nullptr) << error;
  std::vector<UnevenStep> steps(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator = group->Join(rank);
      communicator->SetDeadline(60'000'000);
      RunUneven(uneven, rank, communicator.get(), wanted, steps[static_cast<size_t>(rank)]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return steps;
}

TEST(CudaUnevenVocabularyTest, EveryRowOfABatchHasItsOwnLogits) {
  const UnevenProgram uneven;
  kernels::SampleRow greedy;
  greedy.temperature = 0.0f;
  const std::vector<int32_t> tokens = {3, 200, 256, 128, 129, 0};
  const UnevenBatch batch{tokens, std::vector<kernels::SampleRow>(tokens.size(), greedy)};
  UnevenStep one;
  RunUneven(uneven, 0, nullptr, batch, one);
  for (const int ranks : {2, 4}) {
    const std::vector<UnevenStep> steps = RunOnRanks(uneven, batch, ranks);
    for (size_t row = 0; row < tokens.size(); ++row) {
      std::vector<float> logits;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto count = kernels::VocabularyOf(UnevenProgram::kVocabulary, rank, ranks).count;
        const auto from =
            steps[static_cast<size_t>(rank)].logits.begin() + static_cast<ptrdiff_t>(row) * count;
        logits.insert(logits.end(), from, from + count);
        EXPECT_EQ(steps[static_cast<size_t>(rank)].outputs[row].token, tokens[row])
            << "row " << row << " on rank " << rank << " of " << ranks;
      }
      const auto from = one.logits.begin() + static_cast<ptrdiff_t>(row * logits.size());
      EXPECT_TRUE(std::equal(logits.begin(), logits.end(), from)) << "row " << row;
      EXPECT_EQ(one.outputs[row].token, tokens[row]);
    }
  }
}

kernels::SampleRow MixedRow(int i) {
  static const std::vector<kernels::TokenBias> bias = {{5, 4.0f}, {130, 6.0f}, {256, 5.0f}};
  static const std::vector<kernels::TokenCount> counts = {{0, 1}, {128, 0}, {256, 3}};
  kernels::SampleRow row;
  row.temperature = i % 5 == 0 ? 0.0f : 20.0f;  // the token itself is far ahead
  row.seed = static_cast<uint64_t>(i);
  row.logprobs = i % 3 == 0 ? 0 : i % 22;
  if (i % 4 == 1) row.top_k = i % 8 == 1 ? 7 : 140;
  if (i % 3 == 2) row.top_p = 0.8f;
  if (i % 7 == 3) row.typical_p = 0.7f;
  if (i % 6 == 4) row.min_p = 0.2f;
  if (i % 9 == 5) row.scored_token = 250;
  if (i % 4 == 2) row.logit_bias = bias;
  if (i % 5 == 3) {
    row.token_counts = counts;
    row.presence_penalty = 1.5f;
  }
  return row;
}

void ExpectSameOutputs(const UnevenStep& got, const UnevenStep& wanted) {
  for (size_t i = 0; i < wanted.outputs.size(); ++i) {
    SCOPED_TRACE(i);
    const kernels::SampleOutput& a = got.outputs[i];
    const kernels::SampleOutput& b = wanted.outputs[i];
    EXPECT_EQ(a.token, b.token);
    EXPECT_EQ(a.logprob, b.logprob);
    EXPECT_EQ(a.rank, b.rank);
    ASSERT_EQ(a.top_count, b.top_count);
    EXPECT_TRUE(std::equal(a.top_ids, a.top_ids + a.top_count, b.top_ids));
    EXPECT_TRUE(std::equal(a.top_logprobs, a.top_logprobs + a.top_count, b.top_logprobs));
  }
}

// The logits have the bits of one rank's, and so has every output: rows of all kinds in one step,
// sampled over slices of which the last is shorter.
TEST(CudaUnevenVocabularyTest, SamplesAreThoseOfOneRank) {
  const UnevenProgram uneven;
  for (const int first : {0, 16, 32}) {
    UnevenBatch batch;
    for (int i = first; i < first + 16; ++i) {
      batch.tokens.push_back((i * 67) % UnevenProgram::kVocabulary);
      batch.samples.push_back(MixedRow(i));
    }
    UnevenStep one;
    RunUneven(uneven, 0, nullptr, batch, one);
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, rows from " << first);
      for (const UnevenStep& step : RunOnRanks(uneven, batch, ranks)) ExpectSameOutputs(step, one);
    }
  }
}

}  // namespace
}  // namespace quire::golden
