// The draft head of --speculative-config: opened, checked against the target, loaded.
//
// Owner: WorkerLoader, then LoadedWorker; the target's model, program and backend outlive it. It
// computes in the engine's thread, on the target's backend, so it needs one rank on the CPU.
#pragma once

#include <memory>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "common/status.h"
#include "kernels/backend.h"
#include "worker/config.h"
#include "worker/draft/head_drafter.h"
#include "worker/draft/speculation.h"
#include "worker/model/draft_head.h"

namespace quire {

class DraftHeadSetup {
 public:
  // Opens its files, before the target's. INVALID_ARGUMENT where ranks or a GPU compute, or what
  // model::OpenMedusa and its like return. `config` outlives it.
  static absl::StatusOr<std::unique_ptr<DraftHeadSetup>> Open(const WorkerConfig& config,
                                                              const Speculation& speculation);

  // model::LoadOptions::features of the target.
  std::vector<int> Features(const load::ModelConfig& target) const {
    return head_->Features(target);
  }
  // Builds its programs for the target, without weights. INVALID_ARGUMENT names what does not fit.
  absl::Status Attach(model::Model& target, kernels::Backend& backend);
  // Its keys and values follow the pages of a group of the target's. INVALID_ARGUMENT where no
  // group keeps all of them.
  absl::Status Follow(const kernels::KvLayout& target);

  // Of its weights, workspace and states, and of its pages for each page of the target's cache.
  int64_t FixedBytes() const;
  int64_t BytesPerPage() const { return layer_options_.kv.page_bytes; }

  // Loads it, once the target's weights have been filled and before a backend packs them.
  absl::Status Load(int64_t page_count);
  // After Load. All arguments outlive the drafter.
  std::unique_ptr<HeadDrafter> MakeDrafter(kernels::LoadedProgram& target, int32_t max_model_len,
                                           const Clock& clock, Metrics& metrics);

  // For tests: fills the page that follows the target's with NaN.
  void PoisonPage(int32_t page) {
    if (layer_ != nullptr) layer_->PoisonPage(page);
  }

 private:
  DraftHeadSetup(const WorkerConfig& config, const Speculation& speculation)
      : config_(config), speculation_(speculation) {}
  kernels::ProgramOptions SmallOptions() const;
  int64_t BytesOf(const kernels::StepProgram& program,
                  const kernels::ProgramOptions& options) const {
    return backend_->EstimateWeightBytes(program) +
           backend_->EstimateWorkspaceBytes(program, options);
  }
  std::unique_ptr<kernels::LoadedProgram> LoadProgram(const kernels::StepProgram& program,
                                                      kernels::ProgramOptions options);
  // Pages of its own, for the drafts of the rows of a call.
  int64_t OwnPages() const;

  const WorkerConfig& config_;
  const Speculation speculation_;
  std::unique_ptr<model::DraftHead> head_;
  model::Model* target_ = nullptr;
  kernels::Backend* backend_ = nullptr;
  model::HeadPrograms programs_;
  kernels::ProgramOptions layer_options_;  // without pages where there is no layer
  int32_t group_ = 0;                      // of the target's
  int64_t page_count_ = 0;                 // of the target's
  std::vector<std::unique_ptr<kernels::LoadedProgram>> guesses_;
  std::unique_ptr<kernels::LoadedProgram> project_;
  std::unique_ptr<kernels::LoadedProgram> layer_;
};

}  // namespace quire
