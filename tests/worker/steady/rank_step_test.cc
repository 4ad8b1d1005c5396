// A step of two ranks allocates nothing either: sums over ranks, and the rounds in which they
// sample with every cut.
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/collectives/shared_group.h"
#include "tests/worker/steady/allocation_counter.h"
#include "worker/model/model.h"

namespace quire::test {
namespace {

constexpr int kRanks = 2;
constexpr int kRows = 20;  // more than the ranks sample at once
constexpr int kSteps = 6;
constexpr int64_t kPatienceMicros = 120'000'000;

// Rows of one token each at position 0, sampled in every way.
struct Rows {
  Rows() {
    for (int row = 0; row < kRows; ++row) {
      pages.push_back({row * 10, row * 10 + 1, row * 10 + 2, row * 10 + 3, row * 10 + 4});
    }
    for (int row = 0; row < kRows; ++row) {
      auto& tables = spans.emplace_back();
      for (const int32_t& page : pages[static_cast<size_t>(row)]) tables.emplace_back(&page, 1);
    }
    for (int row = 0; row < kRows; ++row) {
      tokens.push_back(row * 7);
      positions.push_back(0);
      sampled.push_back(row);
      batch_rows.push_back({row, 1, 0, spans[static_cast<size_t>(row)]});
      kernels::SampleRow& how = samples.emplace_back();
      how.seed = static_cast<uint64_t>(row);
      how.temperature = row % 5 == 0 ? 0.0f : 1.2f;
      how.logprobs = row % 3 == 0 ? 21 : 0;
      if (row % 2 == 0) how.top_k = 30;
      if (row % 4 > 1) how.top_p = 0.9f;
      if (row % 3 == 1) how.typical_p = 0.8f;
      if (row % 7 == 1) how.min_p = 0.01f;
      how.repetition_penalty = row % 2 == 0 ? 1.3f : 1.0f;
      how.token_counts = counts;
      how.logit_bias = bias;
    }
  }
  kernels::StepBatch Batch(std::span<kernels::SampleOutput> outputs) const {
    return {tokens, positions, batch_rows, {}, sampled, samples, outputs};
  }

  std::vector<std::vector<int32_t>> pages;  // [row][group]
  std::vector<std::vector<std::span<const int32_t>>> spans;
  std::vector<int32_t> tokens, positions, sampled;
  std::vector<kernels::BatchRow> batch_rows;
  std::vector<kernels::TokenCount> counts = {{3, 1}, {90, 0}, {200, 4}};
  std::vector<kernels::TokenBias> bias = {{5, 1.0f}, {190, -2.0f}};
  std::vector<kernels::SampleRow> samples;
};

TEST(RankStepTest, AStepOfTwoRanksAllocatesNothing) {
  auto model = model::LoadModel(
      std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models/gemma3-pattern", {.with_text = false});
  ASSERT_TRUE(model.ok()) << model.status();
  std::string error;
  const auto group = kernels::SharedGroup::Create({kRanks, 1 << 20}, error);
  ASSERT_NE(group, nullptr) << error;
  std::vector<kernels::StepProgram> programs;
  std::vector<std::unique_ptr<kernels::Communicator>> communicators;
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  std::vector<std::unique_ptr<kernels::LoadedProgram>> loaded;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto program = (*model)->BuildRank({rank, kRanks});
    ASSERT_TRUE(program.ok()) << program.status();
    programs.push_back(*std::move(program));
    communicators.push_back(group->Join(rank));
    communicators.back()->SetDeadline(kPatienceMicros);
    backends.push_back(kernels::MakeCpuBackend({.threads = 2}, error));
    kernels::ProgramOptions options;
    options.kv = kernels::DealLayers(
        programs.back().layer_windows,
        {16, programs.back().kv_heads, programs.back().head_dim, kernels::KvType::kF32});
    ASSERT_LE(options.kv.groups.size(), 10u);
    options.page_count = kRows * 10;
    options.max_tokens = options.max_rows = options.max_samples = kRows;
    options.communicator = communicators.back().get();
    loaded.push_back(backends.back()->Load(programs.back(), options));
  }
  const Rows rows;
  std::vector<std::vector<kernels::SampleOutput>> outputs(
      kRanks, std::vector<kernels::SampleOutput>(kRows));
  // The threads have run a step before what is counted begins.
  std::barrier gate(kRanks + 1);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      loaded[rank]->Run(rows.Batch(outputs[rank]));
      gate.arrive_and_wait();
      gate.arrive_and_wait();
      for (int step = 0; step < kSteps; ++step) loaded[rank]->Run(rows.Batch(outputs[rank]));
      gate.arrive_and_wait();
    });
  }
  gate.arrive_and_wait();
  const int64_t allocations = CountAllocations([&gate] {
    gate.arrive_and_wait();
    gate.arrive_and_wait();
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocations, 0);
  for (size_t row = 0; row < kRows; ++row) {
    EXPECT_GE(outputs[0][row].token, 0);
    EXPECT_EQ(outputs[0][row].token, outputs[1][row].token);
  }
}

}  // namespace
}  // namespace quire::test
