// The second model of --speculative-config: opened, checked against the target, loaded.
//
// Owner: WorkerLoader, then LoadedWorker; the target's backend outlives it. Where the target
// computes in the engine's thread, so does the draft model, on the same threads of the CPU. Beside
// ranks it has a rank of its own, on the first rank's device.
#pragma once

#include <memory>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "common/status.h"
#include "kernels/backend.h"
#include "worker/config.h"
#include "worker/draft/speculation.h"
#include "worker/model/model.h"
#include "worker/ranks/rank_group.h"

namespace quire {

class DraftModel {
 public:
  // Opens it, without its weights. INVALID_ARGUMENT where it cannot draft for the target: another
  // vocabulary, states; or what model::LoadModel returns. `config` is the target's.
  static absl::StatusOr<std::unique_ptr<DraftModel>> Open(const WorkerConfig& config,
                                                          const Speculation& speculation,
                                                          const model::Model& target,
                                                          kernels::Backend& backend);
  ~DraftModel();

  // Of its weights and workspace, and of its pages for each page of the target's cache.
  int64_t FixedBytes() const;
  int64_t BytesPerPage(const kernels::KvLayout& target) const;

  // Loads it with this many bytes of pages. All arguments outlive it.
  absl::Status Load(int64_t page_bytes, const Clock& clock, Logger& log);
  // After Load.
  DraftRunner MakeRunner(Metrics& metrics);

 private:
  DraftModel() = default;
  absl::Status LoadHere(const Clock& clock);
  absl::Status StartRank(Logger& log);
  StepLimits Limits() const;

  WorkerConfig config_;  // the target's, with this model in its place
  int32_t target_vocab_size_ = 0;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<kernels::Backend> own_backend_;  // beside ranks on the CPU
  kernels::Backend* backend_ = nullptr;
  kernels::ProgramOptions options_;
  std::unique_ptr<kernels::LoadedProgram> program_;  // not beside ranks
  Metrics rank_counts_;                              // shown nowhere
  std::unique_ptr<RankMetrics> rank_metrics_;
  std::unique_ptr<RankHost> rank_host_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace quire
