// The memory plan of a model, computed by quire-worker: `quire plan` shows it and `quire doctor`
// checks it.
//
// Blocking, on the calling thread. The command line needs no engine of its own for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace quire::cli {

struct FittingContext {
  int64_t context = 0;
  int64_t sequences = 0;         // at once; 0: it does not fit
  double tokens_per_second = 0;  // of all together; 0: unknown
  double alone = 0;              // of one
};

// Sizes in bytes.
struct WorkerPlan {
  std::string family, device, numerics;
  std::string quantisation;  // of a quantised checkpoint and its forms in memory, or a GGUF's types
  int64_t context = 0;
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 0;
  int64_t block_size = 0;
  int64_t usable_bytes = 0, weight_bytes = 0, workspace_bytes = 0, kv_bytes = 0;
  int64_t adapter_bytes = 0, draft_bytes = 0, constraint_bytes = 0, free_bytes = 0;
  int64_t expert_bytes = 0, step_weight_bytes = 0;  // of a mixture; 0: it is none
  int64_t cache_bytes_per_token = 0;                // in layers without a window
  int64_t head_bytes_per_token = 0;  // of a cache of latents: what its heads would take; else 0
  int64_t state_bytes = 0, state_interval = 0;  // of a sequence with recurrent layers; 0: none
  int64_t page_count = 0;
  int64_t largest_context = 0, largest_context_with_all_memory = 0;
  int64_t largest_batch = 0, largest_batch_with_all_memory = 0;
  double read_bytes_per_second = 0;
  bool limited_by_cgroup = false;
  bool bandwidth_is_measured = true;
  std::vector<FittingContext> fits;
};

// INVALID_ARGUMENT when the line is not what a worker writes.
absl::StatusOr<WorkerPlan> ParseWorkerPlan(const std::string& json_line);

// For people, several lines.
std::string WorkerPlanText(const WorkerPlan& plan);

}  // namespace quire::cli
