// The runner of one rank in this process, on any device: row state here, arithmetic in a loaded
// program.
//
// Owner: worker/main; called from the engine's thread. Invariants: those of Runner; the device is
// lost when the program has failed, and stays so until its owner loads another. Where the program
// takes one step at a time (a CPU), a launched step runs when it is collected, on the caller's
// thread and the backend's pool. Where it takes several, a step is queued on the device when it is
// launched, before the samples of the previous step are known here: its rows take them from the
// device. Only a step with rows whose next output depends on the values of the last ones
// (penalties, bad words of several tokens) waits in Launch for those.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "worker/core/cache_shape.h"
#include "worker/runner/row_table.h"
#include "worker/runner/runner.h"
#include "worker/runner/step_observer.h"
#include "worker/runner/step_packet.h"

namespace quire {

struct CpuRunnerOptions {
  StepLimits limits;
  int max_in_flight = 1;       // more gains nothing on a CPU; tests use 2
  StepMasks* masks = nullptr;  // of constrained rows; outlives the runner
  // Sees each step of a program that shows features; outlives the runner. One step at a time.
  StepObserver* observer = nullptr;
  // The engine's clock, for StepResult::elapsed_us. Not empty: stuck steps are detected by it.
  std::function<int64_t()> now_us;
};

// The cache kinds of a model's pages, in the order in which CacheShape numbers groups.
std::vector<CacheKindShape> CacheKindsOf(const kernels::KvLayout& layout);

class CpuRunner final : public Runner {
 public:
  // `program` outlives the runner. Its block tables are in the order of its KvLayout's groups;
  // groups are numbered kind by kind, as CacheShape numbers them.
  CpuRunner(kernels::LoadedProgram& program, CpuRunnerOptions options);

  // Like Launch, for a packet that comes from another process: INVALID_ARGUMENT when it is damaged,
  // and no step is in flight then.
  absl::Status TryLaunch(std::span<const std::byte> packet);

  void Launch(std::span<const std::byte> packet, int64_t now_us) override;
  void Collect(StepResult& result) override;
  // Whether Collect would not wait. Requires: a step in flight.
  bool Ready();
  bool Lost() const override { return lost_; }
  int MaxInFlight() const override { return options_.max_in_flight; }
  void SetAdapter(int slot, std::shared_ptr<const kernels::AdapterWeights> adapter) override {
    program_.SetAdapter(slot, std::move(adapter));
  }

 private:
  struct Flight {
    StepPlan plan;
    int64_t launched_us = 0;
    bool settled = false;  // `result` has come already
    StepResult result;
  };
  // Takes the samples of a step from the device, the oldest step there.
  void Settle(Flight& flight, StepResult& result);

  kernels::LoadedProgram& program_;
  CpuRunnerOptions options_;
  const bool ahead_;  // steps run when they are launched
  RowTable rows_;
  std::vector<Flight> in_flight_;
  std::vector<Flight> spare_;  // reused
  std::vector<kernels::SampleOutput> outputs_;
  std::vector<ObservedRow> observed_;
  uint64_t last_number_ = 0;
  int64_t last_end_us_ = 0;
  bool lost_ = false;
};

}  // namespace quire
