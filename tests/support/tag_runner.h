// The tag model: a fake model for engine tests whose output depends on every key that a real one
// would read.
//
// Each KV slot stores a tag of (token, position, previous tag, group, salt). "Attention" of a
// sampled token re-reads all tags in its window through the block table and turns them into a row
// of small-integer logits; the sampler is the real one. A page of states holds one tag, that of the
// last position: the next is made from it, and it is all that a query sees. A stale, foreign or
// misplaced block changes the output; a slot that was never written, or given back since, ends the
// process.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/sampling/sampler.h"
#include "tests/support/tag_arithmetic.h"
#include "worker/core/cache_shape.h"
#include "worker/runner/cpu_runner.h"

namespace quire {
struct EngineOptions;
}

namespace quire::test {

// A loaded tag model, on whatever device.
class TagLoaded : public kernels::LoadedProgram {
 public:
  // The salts of the rows of the next Run or Launch, in order; those beyond have salt 0.
  virtual void SetRowSalts(std::vector<uint64_t> salts) = 0;
  // Rows sampled with these seeds get NaN logits.
  virtual void SetNanSeeds(std::set<uint64_t> seeds) = 0;
  void SetNanSeed(uint64_t seed) { SetNanSeeds({seed}); }
  // All rows of the next Run or Launch get NaN logits; the seeds of those that sample are added to
  // `failed`.
  virtual void FailNextRun(std::set<uint64_t>* failed) = 0;
  // Whether every slot of the page has been written since it was given back last.
  virtual bool PageWritten(int32_t page) const = 0;
  virtual int64_t tokens_computed() const = 0;
  // Steps that were launched and not collected are nobody's any more.
  virtual void Drop() {}
  // The device fails with its next step, and from then on.
  virtual void BreakDevice() = 0;
};

class TagProgram final : public TagLoaded {
 public:
  TagProgram(const CacheShape& shape, int32_t vocab_size);

  void Run(const kernels::StepBatch& batch) override;
  void RunWithLogits(const kernels::StepBatch& batch, std::span<float> logits) override;
  void PoisonPage(int32_t page) override;
  int64_t WeightBytes() const override { return 0; }
  int64_t WorkspaceBytes() const override { return 0; }
  int64_t PoolBytes() const override { return static_cast<int64_t>(tags_.size() * 8); }

  void SetRowSalts(std::vector<uint64_t> salts) override { row_salts_ = std::move(salts); }
  void SetNanSeeds(std::set<uint64_t> seeds) override { nan_seeds_ = std::move(seeds); }
  void FailNextRun(std::set<uint64_t>* failed) override { failed_ = failed; }
  bool PageWritten(int32_t page) const override;
  int64_t tokens_computed() const override { return tokens_computed_; }
  void BreakDevice() override { failure_ = "the device says no"; }
  std::string Failure() const override { return failure_; }

 private:
  uint64_t& Tag(const kernels::BatchRow& row, int32_t group, int64_t position);
  void Append(const kernels::StepBatch& batch, size_t index);
  void AppendState(const kernels::StepBatch& batch, size_t index, int32_t group);
  uint64_t Attend(const kernels::BatchRow& row, int32_t token);
  void Logits(const kernels::StepBatch& batch, size_t sample, std::span<float> logits);

  CacheShape shape_;
  int32_t vocab_size_;
  std::vector<int32_t> windows_;  // by group
  std::vector<bool> states_;      // by group, whether it holds states
  std::vector<uint64_t> tags_;    // [page, slot]
  std::vector<uint64_t> behind_;  // [token of the step, group]: the states behind it
  std::vector<uint64_t> row_salts_;
  kernels::sampling::Sampler sampler_;
  std::set<uint64_t> nan_seeds_;
  std::set<uint64_t>* failed_ = nullptr;  // in the next Run
  int64_t tokens_computed_ = 0;
  std::string failure_;
};

struct TagRunnerOptions {
  CacheShape cache;
  int32_t vocab_size = 64;
  int32_t max_num_seqs = 64;
  int32_t max_step_tokens = 4096;
  int32_t max_model_len = 2048;
  int32_t max_loras = 0;
  int max_in_flight = 1;
  StepMasks* masks = nullptr;  // of constrained rows
  // Virtual time that a step of so many tokens takes; empty: none passes.
  std::function<int64_t(int64_t tokens)> step_micros;
  // The same by all that the step holds; before step_micros where both are given.
  std::function<int64_t(const StepPlan&)> plan_micros;
  // The salt of a request, told by its seed (packets carry no salt); empty: all have salt 0.
  std::function<uint64_t(uint64_t seed)> salt_of_seed;
  // What the salt is mixed with, by the slot of a row's adapter (−1: none); empty: nothing.
  std::function<uint64_t(int32_t slot)> salt_of_slot;
  // To the other ranks, where a device has its part of the vocabulary alone. The host's model is
  // whole on every rank and says nothing to the others.
  kernels::Communicator* communicator = nullptr;
};

// The model on the device of this test binary: the host, or where tests/support/tag_cuda is linked,
// an emulated CUDA device.
std::unique_ptr<TagLoaded> MakeTagProgram(const TagRunnerOptions& options);

// A runner for an engine with these options: the same cache and limits.
TagRunnerOptions RunnerOptionsFor(const EngineOptions& engine);

// An adapter for TagRunner::SetAdapter.
struct TagAdapterWeights final : kernels::AdapterWeights {
  explicit TagAdapterWeights(uint64_t adapter_salt) : salt(adapter_salt) {}
  int64_t Bytes() const override { return 1; }
  const uint64_t salt;
};

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
  // Takes TagAdapterWeights.
  void SetAdapter(int slot, std::shared_ptr<const kernels::AdapterWeights> adapter) override;

  // From here on: what is in flight never ends, and nothing is kept. It is back when it is asked
  // for the so manieth time.
  void Lose(int looks = 1);

  TagLoaded& program() { return *program_; }
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
  std::unique_ptr<TagLoaded> program_;
  const bool ahead_;  // steps run when they are launched
  std::unique_ptr<CpuRunner> runner_;
  bool lost_ = false;
  int looks_ = 0;
  std::deque<InFlight> in_flight_;
  struct RowSalt {
    uint64_t of_request = 0;
    int32_t slot = -1;
  };
  uint64_t SaltOfSlot(int32_t slot) const;

  std::vector<RowSalt> salts_;             // by row
  std::map<int32_t, uint64_t> set_salts_;  // of slots that SetAdapter has filled
  int64_t steps_launched_ = 0;
};

}  // namespace quire::test
