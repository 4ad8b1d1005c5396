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

void RunUneven(const UnevenProgram& uneven, int rank, kernels::Communicator* communicator,
               std::span<const int32_t> tokens, UnevenStep& step) {
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
  kernels::SampleRow greedy;
  greedy.temperature = 0.0f;
  const std::vector<kernels::SampleRow> samples(tokens.size(), greedy);
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
  batch.sample_rows = samples;
  batch.sample_outputs = step.outputs;
  loaded->RunWithLogits(batch, step.logits);
  EXPECT_EQ(loaded->Failure(), "");
}

TEST(CudaUnevenVocabularyTest, EveryRowOfABatchHasItsOwnLogits) {
  const UnevenProgram uneven;
  const std::vector<int32_t> tokens = {3, 200, 256, 128, 129, 0};
  UnevenStep one;
  RunUneven(uneven, 0, nullptr, tokens, one);
  for (const int ranks : {2, 4}) {
    std::string error;
    const auto group = kernels::SharedGroup::Create({ranks, 1 << 16}, error);
    ASSERT_NE(group, nullptr) << error;
    std::vector<UnevenStep> steps(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto communicator = group->Join(rank);
        communicator->SetDeadline(60'000'000);
        RunUneven(uneven, rank, communicator.get(), tokens, steps[static_cast<size_t>(rank)]);
      });
    }
    for (std::thread& thread : threads) thread.join();
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

}  // namespace
}  // namespace quire::golden
