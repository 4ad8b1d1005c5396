#include "tests/golden/rank_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <thread>

#include "common/check.h"
#include "common/status.h"

namespace quire::golden {
namespace {

constexpr int64_t kPatienceMicros = 120'000'000;  // the machine may be busy

kernels::ProgramOptions OptionsFor(const kernels::Backend& backend,
                                   const kernels::StepProgram& program,
                                   const RankDriver::Options& options) {
  kernels::ProgramOptions load;
  load.kv =
      kernels::DealLayers(program.layer_windows, backend.PageShape(program, 16), program.states);
  load.page_count = int64_t{(options.max_positions + 15) / 16} * options.sequences *
                    static_cast<int64_t>(load.kv.groups.size());
  load.max_tokens = options.max_positions * options.sequences;
  load.max_rows = options.sequences;
  load.max_loras = options.max_loras;
  load.max_lora_rank = options.max_lora_rank;
  load.max_samples = 24;  // fewer than are sampled: slices
  return load;
}

void ExpectSame(const kernels::SampleOutput& a, const kernels::SampleOutput& b) {
  EXPECT_EQ(a.token, b.token);
  EXPECT_EQ(std::bit_cast<uint32_t>(a.logprob), std::bit_cast<uint32_t>(b.logprob));
  ASSERT_EQ(a.top_count, b.top_count);
  for (int i = 0; i < a.top_count; ++i) EXPECT_EQ(a.top_ids[i], b.top_ids[i]);
}

}  // namespace

std::unique_ptr<RankDriver> RankDriver::Make(model::Model& model, const Options& options,
                                             std::string& error) {
  std::unique_ptr<RankDriver> driver(new RankDriver);
  for (int rank = 0; rank < options.ranks; ++rank) {
    absl::StatusOr<kernels::StepProgram> program =
        model.BuildRank({rank, options.ranks, options.max_loras > 0, options.whole_experts});
    if (!program.ok()) {
      error = StatusMessage(program.status());
      return nullptr;
    }
    OneRank& one = driver->ranks_.emplace_back();
    one.steps = *std::move(program);
    kernels::CpuOptions cpu;
    cpu.threads = options.threads;
    one.backend =
        options.make_backend ? options.make_backend() : kernels::MakeCpuBackend(cpu, error);
    QUIRE_CHECK(one.backend != nullptr);
  }
  if (const absl::Status filled = model.FillWeights(); !filled.ok()) {
    error = StatusMessage(filled);
    return nullptr;
  }
  if (!driver->Load(options, error)) return nullptr;
  const kernels::KvLayout layout =
      OptionsFor(*driver->ranks_.front().backend, driver->ranks_.front().steps, options).kv;
  const int blocks = (options.max_positions + 15) / 16;
  int32_t page = 0;
  driver->tables_.resize(static_cast<size_t>(options.sequences));
  for (auto& groups : driver->tables_) {
    groups.resize(layout.groups.size());
    for (auto& table : groups) {
      for (int block = 0; block < blocks; ++block) table.push_back(page++);
    }
  }
  return driver;
}

bool RankDriver::Load(const Options& options, std::string& error) {
  if (options.ranks > 1) {
    OneRank& first = ranks_.front();
    kernels::SharedGroupOptions group;
    group.size = options.ranks;
    group.arena_bytes = static_cast<size_t>(first.backend->EstimateSharedBytes(
        first.steps, OptionsFor(*first.backend, first.steps, options)));
    group_ = kernels::SharedGroup::Create(group, error);
    if (group_ == nullptr) return false;
  }
  // At once: ranks may meet while they load.
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    threads.emplace_back([&, rank] {
      OneRank& one = ranks_[rank];
      kernels::ProgramOptions load = OptionsFor(*one.backend, one.steps, options);
      if (group_ != nullptr) {
        one.communicator = group_->Join(static_cast<int>(rank));
        one.communicator->SetDeadline(kPatienceMicros);
        load.communicator = one.communicator.get();
      }
      one.program = one.backend->Load(one.steps, load);
      for (int64_t page = 0; page < load.page_count; ++page) {
        one.program->PoisonPage(static_cast<int32_t>(page));
      }
      if (options.install) options.install(one.steps, *one.program);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return true;
}

void RankDriver::RunAll(const kernels::StepBatch& batch, std::vector<std::vector<float>>& logits) {
  outputs_.assign(ranks_.size(), std::vector<kernels::SampleOutput>(batch.sampled_tokens.size()));
  logits.resize(ranks_.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto ids = static_cast<size_t>(kernels::VocabularyOf(ranks_[rank].steps).count);
      logits[rank].resize(batch.sampled_tokens.size() * ids);
      kernels::StepBatch mine = batch;
      mine.sample_outputs = outputs_[rank];
      ranks_[rank].program->RunWithLogits(mine, logits[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<Row> RankDriver::Step(const std::vector<Piece>& pieces, const kernels::SampleRow* how) {
  kernels::SampleRow greedy;
  greedy.temperature = 0.0f;
  std::vector<Row> rows = Run(pieces, how == nullptr ? greedy : *how);
  for (const OneRank& one : ranks_) {
    if (one.communicator == nullptr) continue;
    EXPECT_EQ(one.communicator->failure(), kernels::CommFailure::kNone)
        << kernels::CommFailureName(one.communicator->failure());
  }
  return rows;
}

kernels::CommFailure RankDriver::StepOfFailedGroup(std::span<const int32_t> tokens) {
  Run({{0, 0, tokens}}, {});
  for (const OneRank& one : ranks_) {
    EXPECT_EQ(one.communicator->failure(), ranks_.front().communicator->failure());
  }
  return ranks_.front().communicator->failure();
}

std::vector<Row> RankDriver::Run(const std::vector<Piece>& pieces, const kernels::SampleRow& how) {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<kernels::BatchRow> rows;
  std::vector<std::vector<std::span<const int32_t>>> tables(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    for (const auto& table : tables_[static_cast<size_t>(piece.sequence)]) {
      tables[i].emplace_back(table);
    }
    rows.push_back({static_cast<int>(tokens.size()), static_cast<int>(piece.tokens.size()),
                    piece.begin, tables[i], -1, piece.adapter});
    for (size_t t = 0; t < piece.tokens.size(); ++t) {
      tokens.push_back(piece.tokens[t]);
      positions.push_back(piece.begin + static_cast<int32_t>(t));
    }
  }
  std::vector<int32_t> wanted(tokens.size());
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<int32_t>(i);
  std::vector<kernels::SampleRow> samples(tokens.size(), how);
  for (size_t i = 0; i < samples.size(); ++i) samples[i].output_index = i;
  kernels::StepBatch batch;
  batch.tokens = tokens;
  batch.positions = positions;
  batch.rows = rows;
  batch.sampled_tokens = wanted;
  batch.sample_rows = samples;
  std::vector<std::vector<float>> logits;
  RunAll(batch, logits);
  std::vector<Row> result(tokens.size());
  for (size_t i = 0; i < result.size(); ++i) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto ids = kernels::VocabularyOf(ranks_[rank].steps).count;
      const auto from = logits[rank].begin() + static_cast<int64_t>(i) * ids;
      result[i].logits.insert(result[i].logits.end(), from, from + ids);
      ExpectSame(outputs_[rank][i], outputs_[0][i]);
    }
    result[i].token = outputs_[0][i].token;
  }
  return result;
}

}  // namespace quire::golden
