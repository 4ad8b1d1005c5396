#include "worker/load/memory_plan.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "worker/load/progress.h"

namespace quire::load {
namespace {

int64_t BlocksOf(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

// The longest max_model_len whose pages fit; 0 when not even one block does.
int64_t LongestSequence(const MemoryRequest& request, int64_t pages) {
  int64_t low = 0;
  int64_t high = request.max_model_len;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (PagesPerSequence(request.kv, middle, request.max_num_batched_tokens) <= pages) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// `left`: the memory that the weights and the workspace leave.
absl::Status DoesNotFit(const MemoryRequest& request, int64_t kv_bytes, int64_t left) {
  const int64_t needed =
      PagesPerSequence(request.kv, request.max_model_len, request.max_num_batched_tokens) *
      request.kv.page_bytes;
  const int64_t longest = LongestSequence(request, kv_bytes / request.kv.page_bytes);
  const bool bounded = request.kv_cache_memory_bytes.has_value();
  std::string message = absl::StrCat(
      "max_model_len ", request.max_model_len, " needs ", BytesText(needed), " of KV cache, ",
      BytesText(kv_bytes), " are available",
      bounded ? absl::StrCat(" of --kv-cache-memory-bytes ", *request.kv_cache_memory_bytes) : "");
  if (longest > 0) {
    absl::StrAppend(&message, "; --max-model-len ", longest, " fits");
    if (!bounded) absl::StrAppend(&message, ", or set --kv-cache-memory-bytes");
  } else {
    absl::StrAppend(&message, "; not one block of ", request.kv.block_size, " tokens fits");
  }
  if (bounded && needed <= left) {
    absl::StrAppend(&message, longest > 0 ? ", or " : "; ", "--kv-cache-memory-bytes ", needed,
                    longest > 0 ? "" : " fits");
  }
  return absl::ResourceExhaustedError(message);
}

absl::Status WeightsDoNotFit(const MemoryRequest& request, int64_t usable) {
  const int64_t each =
      request.weight_bytes + request.workspace_bytes + request.adapter_bytes + request.draft_bytes;
  const int64_t workers = request.usable_bytes / std::max<int64_t>(each, 1);
  return absl::ResourceExhaustedError(absl::StrCat(
      "weights need ", BytesText(request.weight_bytes), " and the workspace ",
      BytesText(request.workspace_bytes),
      request.adapter_bytes > 0
          ? absl::StrCat(" and the adapters of --max-loras ", BytesText(request.adapter_bytes))
          : "",
      request.draft_bytes > 0
          ? absl::StrCat(" and the draft model ", BytesText(request.draft_bytes))
          : "",
      " per worker, ", BytesText(usable), " are usable",
      request.limited_by_cgroup ? " by the cgroup's limit" : "",
      workers >= 1 ? absl::StrCat("; --workers ", workers, " fits")
                   : std::string("; no setting fits, take a smaller or quantised model")));
}

}  // namespace

int64_t PagesPerSequence(const kernels::KvLayout& kv, int64_t tokens, int64_t chunk_tokens) {
  QUIRE_CHECK(kv.block_size > 0 && tokens >= 0 && chunk_tokens >= 0);
  int64_t pages = 0;
  for (const kernels::KvKind& kind : kv.kinds) {
    int64_t blocks = BlocksOf(tokens, kv.block_size);
    if (kind.state_interval > 0) {
      // As KvCache::PeakPages.
      const int64_t most = BlocksOf(chunk_tokens, kv.block_size) + 1;
      blocks = std::min(blocks, 2 + std::min(most, most / kind.state_interval + 5));
    } else if (kind.window > 0) {
      // A stretch of n tokens touches at most one block more than it would if it began at one.
      const int64_t stretch = int64_t{kind.window} - 1 + chunk_tokens;
      blocks = std::min(blocks, BlocksOf(stretch, kv.block_size) + 1);
    }
    pages += blocks * kind.groups;
  }
  return pages;
}

absl::StatusOr<MemoryPlan> PlanMemory(const MemoryRequest& request) {
  QUIRE_CHECK(request.workers >= 1 && request.max_num_seqs >= 1 && request.max_model_len >= 1);
  QUIRE_CHECK(request.kv.page_bytes > 0);
  MemoryPlan plan;
  plan.usable_bytes = request.usable_bytes / request.workers;
  plan.limited_by_cgroup = request.limited_by_cgroup;
  plan.weight_bytes = request.weight_bytes;
  plan.workspace_bytes = request.workspace_bytes;
  plan.adapter_bytes = request.adapter_bytes;
  plan.draft_bytes = request.draft_bytes;
  const int64_t left = plan.usable_bytes - plan.PlannedBytes();
  if (left <= 0) return WeightsDoNotFit(request, plan.usable_bytes);

  plan.pages_per_sequence =
      PagesPerSequence(request.kv, request.max_model_len, request.max_num_batched_tokens);
  QUIRE_CHECK(plan.pages_per_sequence > 0);
  // A page, and what a draft model has beside it.
  const int64_t each_page = request.kv.page_bytes + request.draft_bytes_per_page;
  const int64_t most =
      request.draft_bytes_per_page > 0 ? left / each_page * request.kv.page_bytes : left;
  const int64_t pages_to_be_had = (request.on_gpu ? left : left / 2) / each_page;
  if (request.kv_cache_memory_bytes.has_value()) {
    if (*request.kv_cache_memory_bytes > most) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "--kv-cache-memory-bytes ", *request.kv_cache_memory_bytes, " is more than the ",
          BytesText(most), " left after weights and workspace; ", most, " fits"));
    }
    plan.page_count = *request.kv_cache_memory_bytes / request.kv.page_bytes;
  } else {
    // Divided first: the product of both limits may be past what an integer holds.
    const int64_t affordable_seqs = pages_to_be_had / plan.pages_per_sequence;
    plan.page_count = affordable_seqs >= request.max_num_seqs
                          ? request.max_num_seqs * plan.pages_per_sequence
                          : pages_to_be_had;
  }
  plan.kv_bytes = plan.page_count * request.kv.page_bytes;
  plan.draft_bytes += plan.page_count * request.draft_bytes_per_page;
  if (plan.page_count < plan.pages_per_sequence) return DoesNotFit(request, plan.kv_bytes, most);
  const int64_t rest = plan.usable_bytes - plan.PlannedBytes();
  if (request.constraint_bytes <= rest) plan.constraint_bytes = request.constraint_bytes;
  plan.free_bytes = rest - plan.constraint_bytes;
  return plan;
}

std::string MemoryPlanLine(const MemoryPlan& plan) {
  std::string line = absl::StrCat("weights ", BytesText(plan.weight_bytes), ", workspace ",
                                  BytesText(plan.workspace_bytes));
  if (plan.adapter_bytes > 0) {
    absl::StrAppend(&line, ", adapters ", BytesText(plan.adapter_bytes));
  }
  if (plan.draft_bytes > 0) absl::StrAppend(&line, ", draft model ", BytesText(plan.draft_bytes));
  absl::StrAppend(&line, ", kv cache ", BytesText(plan.kv_bytes), ", grammars ",
                  BytesText(plan.constraint_bytes), ", free ", BytesText(plan.free_bytes));
  return line;
}

std::string MemoryPlanText(const MemoryPlan& plan, const MemoryRequest& request) {
  std::string text = absl::StrFormat("memory     %8s usable%s%s", BytesText(plan.usable_bytes),
                                     request.workers > 1 ? " per worker" : "",
                                     plan.limited_by_cgroup ? " (the cgroup's limit)" : "");
  absl::StrAppendFormat(&text, "\n  weights   %8s", BytesText(plan.weight_bytes));
  absl::StrAppendFormat(&text, "\n  workspace %8s", BytesText(plan.workspace_bytes));
  if (plan.adapter_bytes > 0) {
    absl::StrAppendFormat(&text, "\n  adapters  %8s  at most", BytesText(plan.adapter_bytes));
  }
  if (plan.draft_bytes > 0) {
    absl::StrAppendFormat(&text, "\n  drafts    %8s  what drafts, and its pages",
                          BytesText(plan.draft_bytes));
  }
  absl::StrAppendFormat(&text, "\n  kv cache  %8s  %d pages of %d tokens (%s), %d sequences of %d",
                        BytesText(plan.kv_bytes), plan.page_count, request.kv.block_size,
                        kernels::KvTypeName(request.kv.type),
                        plan.page_count / plan.pages_per_sequence, request.max_model_len);
  if (request.kv.states.kind >= 0) {
    absl::StrAppendFormat(&text, "\n            %8s  a sequence's state, in %d pages",
                          BytesText(request.kv.states.bytes), request.kv.states.groups);
  }
  if (plan.constraint_bytes > 0) {
    absl::StrAppendFormat(&text, "\n  grammars  %8s  at most", BytesText(plan.constraint_bytes));
  }
  absl::StrAppendFormat(&text, "\n  free      %8s", BytesText(plan.free_bytes));
  return text;
}

}  // namespace quire::load
