#include "tests/support/tag_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"
#include "worker/adapters/adapter_table.h"
#include "worker/engine/engine.h"
#include "worker/scheduler/scheduler_values.h"

namespace quire::test {
namespace {

StepLimits MakeLimits(const TagRunnerOptions& options) {
  StepLimits limits;
  limits.max_rows = options.max_num_seqs;
  limits.max_tokens = options.max_step_tokens;
  limits.max_model_len = options.max_model_len;
  limits.block_size = options.cache.block_size;
  limits.groups = options.cache.GroupCount();
  limits.page_count = options.cache.page_count;
  limits.vocab_size = options.vocab_size;
  limits.max_loras = options.max_loras;
  return limits;
}

}  // namespace

TagProgram::TagProgram(const CacheShape& shape, int32_t vocab_size)
    : shape_(shape), vocab_size_(vocab_size) {
  for (const CacheKindShape& kind : shape_.kinds) {
    QUIRE_CHECK_MSG(kind.window != 1, "a window of one cannot see the previous tag");
    windows_.insert(windows_.end(), static_cast<size_t>(kind.groups), kind.window);
    states_.insert(states_.end(), static_cast<size_t>(kind.groups), kind.HoldsStates());
  }
  tags_.assign(static_cast<size_t>(shape_.page_count * shape_.block_size), kNoTag);
}

void TagProgram::PoisonPage(int32_t page) {
  const auto first = tags_.begin() + int64_t{page} * shape_.block_size;
  std::fill(first, first + shape_.block_size, kNoTag);
}

bool TagProgram::PageWritten(int32_t page) const {
  const auto first = tags_.begin() + int64_t{page} * shape_.block_size;
  return std::find(first, first + shape_.block_size, kNoTag) == first + shape_.block_size;
}

uint64_t& TagProgram::Tag(const kernels::BatchRow& row, int32_t group, int64_t position) {
  const std::span<const int32_t> table = row.block_tables[static_cast<size_t>(group)];
  const int64_t block = position / shape_.block_size;
  QUIRE_CHECK_MSG(block < static_cast<int64_t>(table.size()), "a position has no block");
  const int32_t page = table[static_cast<size_t>(block)];
  QUIRE_CHECK_MSG(page >= 0 && page < shape_.page_count, "a block behind the window is read");
  return tags_[static_cast<size_t>(int64_t{page} * shape_.block_size +
                                   position % shape_.block_size)];
}

void TagProgram::Append(const kernels::StepBatch& batch, size_t index) {
  const kernels::BatchRow& row = batch.rows[index];
  const uint64_t root = TagRoot(index < row_salts_.size() ? row_salts_[index] : 0);
  for (int i = 0; i < row.token_count; ++i) {
    const int64_t position = row.first_position + i;
    const int32_t token = batch.tokens[static_cast<size_t>(row.first_token + i)];
    QUIRE_CHECK(batch.positions[static_cast<size_t>(row.first_token + i)] == position);
    for (int32_t group = 0; group < static_cast<int32_t>(windows_.size()); ++group) {
      if (states_[static_cast<size_t>(group)]) continue;
      const uint64_t previous = position == 0 ? root : Tag(row, group, position - 1);
      QUIRE_CHECK_MSG(previous != kNoTag, "a key is read that no step wrote");
      Tag(row, group, position) = TagOf(previous, token, position, group);
    }
    ++tokens_computed_;
  }
  for (int32_t group = 0; group < static_cast<int32_t>(windows_.size()); ++group) {
    if (states_[static_cast<size_t>(group)]) AppendState(batch, index, group);
  }
}

// The page of a position's block holds the state behind it, whatever was there before.
void TagProgram::AppendState(const kernels::StepBatch& batch, size_t index, int32_t group) {
  const kernels::BatchRow& row = batch.rows[index];
  const int64_t first = row.first_position;
  uint64_t state = TagRoot(index < row_salts_.size() ? row_salts_[index] : 0);
  const auto place = [&](int64_t position) {
    return &Tag(row, group, position / shape_.block_size * shape_.block_size);
  };
  if (first > 0) state = *place(first - 1);
  QUIRE_CHECK_MSG(state != kNoTag, "a state is read that no step wrote");
  for (int i = 0; i < row.token_count; ++i) {
    const size_t token = static_cast<size_t>(row.first_token + i);
    state = TagOf(state, batch.tokens[token], first + i, group);
    behind_[token * windows_.size() + static_cast<size_t>(group)] = state;
    std::fill_n(place(first + i), shape_.block_size, state);
  }
}

uint64_t TagProgram::Attend(const kernels::BatchRow& row, int32_t token) {
  const int64_t position = row.first_position + (token - row.first_token);
  uint64_t seen = 1;
  for (int32_t group = 0; group < static_cast<int32_t>(windows_.size()); ++group) {
    if (states_[static_cast<size_t>(group)]) {
      const size_t at = static_cast<size_t>(token) * windows_.size() + static_cast<size_t>(group);
      seen = TagSeen(seen, behind_[at]);
      continue;
    }
    const int64_t window = windows_[static_cast<size_t>(group)];
    const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, position - window + 1);
    for (int64_t key = first; key <= position; ++key) {
      const uint64_t tag = Tag(row, group, key);
      QUIRE_CHECK_MSG(tag != kNoTag, "a key is read that no step wrote");
      seen = TagSeen(seen, tag);
    }
  }
  return seen;
}

void TagProgram::Logits(const kernels::StepBatch& batch, size_t sample, std::span<float> logits) {
  const int32_t token = batch.sampled_tokens[sample];
  const auto row = std::find_if(batch.rows.begin(), batch.rows.end(), [&](const auto& candidate) {
    return token >= candidate.first_token && token < candidate.first_token + candidate.token_count;
  });
  QUIRE_CHECK(row != batch.rows.end());
  const uint64_t seen = Attend(*row, token);
  for (size_t id = 0; id < logits.size(); ++id) {
    logits[id] = TagLogit(seen, static_cast<int32_t>(id));
  }
  const uint64_t seed = batch.sample_rows[sample].seed;
  if (failed_ != nullptr) failed_->insert(seed);
  if (failed_ != nullptr || nan_seeds_.contains(seed)) {
    logits[0] = std::numeric_limits<float>::quiet_NaN();
  }
}

void TagProgram::Run(const kernels::StepBatch& batch) {
  std::vector<float> logits(batch.sampled_tokens.size() * static_cast<size_t>(vocab_size_));
  RunWithLogits(batch, logits);
}

void TagProgram::RunWithLogits(const kernels::StepBatch& batch, std::span<float> logits) {
  if (!failure_.empty()) return;
  const size_t vocab = static_cast<size_t>(vocab_size_);
  QUIRE_CHECK(logits.size() == batch.sampled_tokens.size() * vocab);
  for (const kernels::PageCopy& copy : batch.copies) {
    for (int32_t slot = 0; slot < shape_.block_size; ++slot) {
      tags_[static_cast<size_t>(copy.to * shape_.block_size + slot)] =
          tags_[static_cast<size_t>(copy.from * shape_.block_size + slot)];
    }
  }
  behind_.resize(batch.tokens.size() * windows_.size());
  for (size_t row = 0; row < batch.rows.size(); ++row) Append(batch, row);
  row_salts_.clear();
  if (batch.late_masks != nullptr) batch.late_masks->Fill();
  for (size_t sample = 0; sample < batch.sampled_tokens.size(); ++sample) {
    const std::span<float> row = logits.subspan(sample * vocab, vocab);
    Logits(batch, sample, row);
    sampler_.Sample(row, batch.sample_rows[sample], batch.sample_outputs[sample]);
  }
  failed_ = nullptr;
}

TagRunnerOptions RunnerOptionsFor(const EngineOptions& engine) {
  TagRunnerOptions runner;
  runner.cache = {engine.block_size, engine.page_count, engine.cache_kinds};
  runner.vocab_size = engine.vocab_size;
  runner.max_num_seqs = engine.max_num_seqs;
  runner.max_step_tokens =
      MaxStepTokens(engine.max_num_seqs, engine.max_num_batched_tokens, engine.block_size);
  runner.max_model_len = engine.max_model_len;
  runner.max_loras = engine.adapters == nullptr ? 0 : engine.adapters->max_loras();
  return runner;
}

TagRunner::TagRunner(const TagRunnerOptions& options)
    : options_(options),
      limits_(MakeLimits(options)),
      program_(MakeTagProgram(options)),
      ahead_(options.max_in_flight > 1 && program_->MaxInFlight() >= options.max_in_flight),
      salts_(static_cast<size_t>(options.max_num_seqs)) {
  Renew();
}

void TagRunner::Renew() {
  runner_ = std::make_unique<CpuRunner>(*program_,
                                        CpuRunnerOptions{.limits = limits_,
                                                         .max_in_flight = options_.max_in_flight,
                                                         .masks = options_.masks,
                                                         .now_us = [] { return int64_t{0}; }});
}

void TagRunner::Lose(int looks) {
  lost_ = true;
  looks_ = looks;
  in_flight_.clear();
  program_->Drop();
  for (int32_t page = 0; page < options_.cache.page_count; ++page) program_->PoisonPage(page);
  Renew();
}

bool TagRunner::Restore() {
  QUIRE_CHECK(lost_);
  lost_ = --looks_ > 0;
  return !lost_;
}

void TagRunner::Launch(std::span<const std::byte> packet, int64_t now_us) {
  if (lost_) return;
  StepPlan plan;
  QUIRE_CHECK(DecodeStepPlan(packet, limits_, plan).ok());
  int64_t tokens = 0;
  for (const RowBirth& birth : plan.born) {
    const uint64_t seed = birth.sampling.seed;
    RowSalt& salt = salts_[static_cast<size_t>(birth.row)];
    salt = {options_.salt_of_seed ? options_.salt_of_seed(seed) : 0, birth.adapter_slot};
  }
  std::vector<uint64_t> salts;
  for (const StepRow& row : plan.rows) {
    tokens += row.q_len;
    const RowSalt& salt = salts_[static_cast<size_t>(row.row)];
    salts.push_back(salt.of_request ^ SaltOfSlot(salt.slot));
  }
  if (ahead_) program_->SetRowSalts(salts);
  runner_->Launch(packet, now_us);
  ++steps_launched_;
  int64_t elapsed = options_.step_micros ? options_.step_micros(tokens) : 0;
  if (options_.plan_micros) elapsed = options_.plan_micros(plan);
  const int64_t start = in_flight_.empty() ? now_us : std::max(now_us, in_flight_.back().ready_us);
  in_flight_.push_back({start + elapsed, elapsed, std::move(salts)});
}

void TagRunner::SetAdapter(int slot, std::shared_ptr<const kernels::AdapterWeights> adapter) {
  set_salts_[slot] = static_cast<const TagAdapterWeights&>(*adapter).salt;
}

// What a slot holds now: a row computes with that, whatever it was born with.
uint64_t TagRunner::SaltOfSlot(int32_t slot) const {
  const auto set = set_salts_.find(slot);
  if (set != set_salts_.end()) return set->second;
  return options_.salt_of_slot ? options_.salt_of_slot(slot) : 0;
}

int64_t TagRunner::ReadyAt() const {
  if (lost_) return 0;
  QUIRE_CHECK(!in_flight_.empty());
  return in_flight_.front().ready_us;
}

void TagRunner::Collect(StepResult& result) {
  if (lost_) return;
  QUIRE_CHECK(!in_flight_.empty());
  if (!ahead_) program_->SetRowSalts(std::move(in_flight_.front().salts));
  runner_->Collect(result);
  QUIRE_CHECK_MSG(!runner_->Lost(), program_->Failure().c_str());
  result.elapsed_us = in_flight_.front().elapsed_us;
  in_flight_.pop_front();
}

void TagRunner::DelayStep(int64_t micros) {
  QUIRE_CHECK(!in_flight_.empty());
  in_flight_.back().ready_us += micros;
}

}  // namespace quire::test
