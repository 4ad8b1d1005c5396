// The runner of one rank in this process: row state here, arithmetic in a loaded program.
//
// Owner: worker/main; called from the engine's thread. Invariants: those of Runner; a launched step
// runs when it is collected, on the caller's thread and the backend's pool; the device is lost when
// the program has failed, and stays so: whoever loaded it loads another.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "worker/core/cache_shape.h"
#include "worker/runner/row_table.h"
#include "worker/runner/runner.h"
#include "worker/runner/step_packet.h"

namespace quire {

struct CpuRunnerOptions {
  StepLimits limits;
  int max_in_flight = 1;  // more gains nothing here; tests use 2
  // The engine's clock, for StepResult::elapsed_us. Not empty: the measure of a stuck step.
  std::function<int64_t()> now_us;
};

// The cache kinds of a model's pages, in the order in which CacheShape numbers groups.
std::vector<CacheKindShape> CacheKindsOf(const kernels::KvLayout& layout);

class CpuRunner final : public Runner {
 public:
  // `program` outlives the runner. Its block tables are in the order of its KvLayout's groups;
  // groups are numbered kind by kind, as CacheShape numbers them.
  CpuRunner(kernels::LoadedProgram& program, CpuRunnerOptions options);

  // As Launch, for a packet that comes from another process: INVALID_ARGUMENT when it is damaged,
  // and no step is in flight then.
  absl::Status TryLaunch(std::span<const std::byte> packet);

  void Launch(std::span<const std::byte> packet, int64_t now_us) override;
  void Collect(StepResult& result) override;
  bool Lost() const override { return lost_; }
  int MaxInFlight() const override { return options_.max_in_flight; }

 private:
  kernels::LoadedProgram& program_;
  CpuRunnerOptions options_;
  RowTable rows_;
  std::vector<StepPlan> in_flight_;
  std::vector<StepPlan> spare_;  // reused
  uint64_t last_number_ = 0;
  bool lost_ = false;
};

}  // namespace quire
