// How memory is divided before anything is loaded: weights, workspace, pages of keys and values,
// free memory.
//
// Pure functions; the caller brings the sizes and prints the plan.
// 1. weights + workspace + adapters + draft model + kv + constraints + free = usable, ÷ workers;
// none is negative.
// 2. The pages hold at least one sequence of max_model_len, so that no accepted request can starve.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/kv_layout.h"

namespace quire::load {

struct MemoryRequest {
  int64_t usable_bytes = 0;  // of all workers together
  bool limited_by_cgroup = false;
  int workers = 1;
  int64_t weight_bytes = 0;     // of one worker, packed
  int64_t workspace_bytes = 0;  // of one worker
  int64_t adapter_bytes = 0;    // of all that may be in memory, of one worker
  // Of a draft model or head: weights and workspace, and the pages that it has for each page of the
  // cache, so that it has room for the same tokens.
  int64_t draft_bytes = 0;
  int64_t draft_bytes_per_page = 0;
  kernels::KvLayout kv;
  int64_t max_num_seqs = 64;
  int64_t max_model_len = 0;
  int64_t max_num_batched_tokens = 2048;
  int64_t constraint_bytes = 0;  // that grammars may hold, with their vocabulary; of one worker
  // The memory is a GPU's, which nothing else needs: the cache may have all that is left. A margin
  // for the driver is not in usable_bytes.
  bool on_gpu = false;
  std::optional<int64_t> kv_cache_memory_bytes;  // of one worker, when the operator sets it
};

// All of one worker.
struct MemoryPlan {
  int64_t usable_bytes = 0;
  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t adapter_bytes = 0;
  int64_t draft_bytes = 0;  // its pages included
  int64_t kv_bytes = 0;
  int64_t constraint_bytes = 0;  // as requested, or 0: there is no room
  int64_t free_bytes = 0;
  int64_t page_count = 0;
  int64_t pages_per_sequence = 0;  // of max_model_len
  bool limited_by_cgroup = false;

  int64_t PlannedBytes() const {
    return weight_bytes + workspace_bytes + adapter_bytes + draft_bytes + kv_bytes;
  }
};

// The most pages that one sequence of `tokens` holds: all blocks of full groups; of sliding ones
// those that a window and one chunk of `chunk_tokens` overlap. Of states: the running one, the one
// at the last border, and those that such a chunk keeps.
int64_t PagesPerSequence(const kernels::KvLayout& kv, int64_t tokens, int64_t chunk_tokens);

// KV gets what max_num_seqs sequences of max_model_len need, at most half of what is left after
// weights, workspace, adapters and draft model, on a GPU all of it; or the operator's value.
// RESOURCE_EXHAUSTED when weights and workspace, or one whole sequence, do not fit, naming the
// largest setting that does.
absl::StatusOr<MemoryPlan> PlanMemory(const MemoryRequest& request);

// "weights 5.78 MB, workspace 29.2 MB, …".
std::string MemoryPlanLine(const MemoryPlan& plan);

// The plan as text for people, several lines, the last without a line end.
std::string MemoryPlanText(const MemoryPlan& plan, const MemoryRequest& request);

}  // namespace quire::load
