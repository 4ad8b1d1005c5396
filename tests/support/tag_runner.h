// The tag model: a fake model for engine tests whose output depends on every key that a real one
// would read.
//
// Each KV slot stores a tag of (token, position, previous tag, group, salt). "Attention" of a
// sampled token re-reads all tags in its window through the block table and turns them into a row
// of small-integer logits; the sampler is the real one. A stale, foreign or misplaced block changes
// the output; a slot that was never written, or given back since, ends the process.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/sampling/sampler.h"
#include "worker/core/cache_shape.h"
#include "worker/runner/cpu_runner.h"

namespace quire {
struct EngineOptions;
}

namespace quire::test {

// The arithmetic of the model, for whoever wants to foretell its answers (tag_reference.h).
uint64_t TagRoot(uint64_t salt);  // the tag before position 0
uint64_t TagOf(uint64_t previous, int32_t token, int64_t position, int32_t group);
uint64_t TagSeen(uint64_t seen, uint64_t tag);  // folds one more key into what a query saw; from 1
float TagLogit(uint64_t seen, int32_t id);

class TagProgram final : public kernels::LoadedProgram {
 public:
  TagProgram(const CacheShape& shape, int32_t vocab_size);

  void Run(const kernels::StepBatch& batch) override;
  void RunWithLogits(const kernels::StepBatch& batch, std::span<float> logits) override;
  void PoisonPage(int32_t page) override;
  int64_t WeightBytes() const override { return 0; }
  int64_t WorkspaceBytes() const override { return 0; }
  int64_t PoolBytes() const override { return static_cast<int64_t>(tags_.size() * 8); }

  // The salts of the rows of the next Run, in order; those beyond have salt 0.
  void SetRowSalts(std::vector<uint64_t> salts) { row_salts_ = std::move(salts); }
  // Rows sampled with these seeds get NaN logits.
  void SetNanSeed(uint64_t seed) { nan_seeds_ = {seed}; }
  void SetNanSeeds(std::set<uint64_t> seeds) { nan_seeds_ = std::move(seeds); }
  // All rows of the next Run get NaN logits; the seeds of those that sample are added to `failed`.
  void FailNextRun(std::set<uint64_t>* failed) { failed_ = failed; }
  // Whether every slot of the page has been written since it was given back last.
  bool PageWritten(int32_t page) const;
  int64_t tokens_computed() const { return tokens_computed_; }

 private:
  uint64_t& Tag(const kernels::BatchRow& row, int32_t group, int64_t position);
  void Append(const kernels::StepBatch& batch, size_t index);
  uint64_t Attend(const kernels::BatchRow& row, int64_t position);
  void Logits(const kernels::StepBatch& batch, size_t sample, std::span<float> logits);

  CacheShape shape_;
  int32_t vocab_size_;
  std::vector<int32_t> windows_;  // by group
  std::vector<uint64_t> tags_;    // [page, slot]
  std::vector<uint64_t> row_salts_;
  kernels::sampling::Sampler sampler_;
  std::set<uint64_t> nan_seeds_;
  std::set<uint64_t>* failed_ = nullptr;  // in the next Run
  int64_t tokens_computed_ = 0;
};

struct TagRunnerOptions {
  CacheShape cache;
  int32_t vocab_size = 64;
  int32_t max_num_seqs = 64;
  int32_t max_step_tokens = 4096;
  int32_t max_model_len = 2048;
  int max_in_flight = 1;
  // Virtual time that a step of so many tokens takes; empty: none passes.
  std::function<int64_t(int64_t tokens)> step_micros;
  // The same by all that the step holds; before step_micros where both are given.
  std::function<int64_t(const StepPlan&)> plan_micros;
  // The salt of a request, told by its seed (packets carry no salt); empty: all have salt 0.
  std::function<uint64_t(uint64_t seed)> salt_of_seed;
};

// A runner for an engine with these options: the same cache and limits.
TagRunnerOptions RunnerOptionsFor(const EngineOptions& engine);

// The real row state and packets over the tag model, in virtual time.
class TagRunner final : public Runner {
 public:
  explicit TagRunner(const TagRunnerOptions& options);

  void Launch(std::span<const std::byte> packet, int64_t now_us) override;
  int64_t ReadyAt() const override;
  void Collect(StepResult& result) override;
  int MaxInFlight() const override { return options_.max_in_flight; }
  bool Lost() const override { return lost_; }
  bool Restore() override;

  // From here on: what is in flight never ends, and nothing is kept. It is back when it is asked
  // for the so manieth time.
  void Lose(int looks = 1);

  TagProgram& program() { return program_; }
  // The newest step in flight ends later (or, with a large value, never).
  void DelayStep(int64_t micros);
  int64_t steps_launched() const { return steps_launched_; }

 private:
  void Renew();

  struct InFlight {
    int64_t ready_us = 0;
    int64_t elapsed_us = 0;
    std::vector<uint64_t> salts;  // of its rows, in order
  };

  TagRunnerOptions options_;
  StepLimits limits_;
  TagProgram program_;
  std::unique_ptr<CpuRunner> runner_;
  bool lost_ = false;
  int looks_ = 0;
  std::deque<InFlight> in_flight_;
  std::vector<uint64_t> salts_;  // by row
  int64_t steps_launched_ = 0;
};

}  // namespace quire::test
