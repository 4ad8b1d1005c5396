// The named limits of the router, in one place: every queue, retry and buffer is bounded by one of
// them.
//
// Plain values, fixed at start.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/ids.h"

namespace quire {

// A worker that this router knows, by its place in the list.
using WorkerIndex = StrongId<struct WorkerIndexTag, uint32_t>;

struct RouterLimits {
  uint32_t max_live_requests = 4096;           // accepted and not yet ended
  uint32_t max_queued_requests = 1024;         // of these, waiting for room at a worker
  uint32_t max_queued_per_tenant = 0;          // of these again; 0: all of them
  uint64_t max_journal_bytes = 256u << 20;     // accepted tokens of running answers, all of them
  uint32_t max_tenants = 4096;                 // with requests, or quotas in use
  uint32_t max_tenant_labels = 100;            // in metrics; the rest is "other"
  uint32_t max_workers = 1024;                 // known at once
  uint32_t max_pools = 256;                    // (served name, model_id) pairs
  size_t max_text_bundles_bytes = 512u << 20;  // all bundles being read at once
  size_t max_prompt_bytes = 16u << 20;         // text of one prompt, before it is tokenised
  size_t max_response_bytes = 16u << 20;       // text of one answer that is not streamed
  size_t max_stop_strings = 16;
  size_t max_stop_string_bytes = 256;
  size_t max_bad_words = 64;
  size_t max_bad_word_bytes = 256;
  // Logprobs of one prompt: its tokens times (1 + candidates).
  size_t max_prompt_logprobs = 131'072;
  // /tokenize and /detokenize: work under way of one tenant and of all, and the size of an answer.
  size_t max_tokenize_requests = 64;
  size_t max_tokenize_requests_of_all = 256;
  size_t max_tokenize_answer_bytes = 8u << 20;
  uint32_t window_tokens = 256;  // outputs a worker may be ahead of the client, per choice
  // Second attempts of one request that was refused or failed before anything was accepted, and of
  // all requests together: so many percent of them, saved up to a burst.
  uint32_t max_placement_retries = 3;
  uint32_t placement_retry_percent = 10;
  uint32_t placement_retry_burst = 10;
  // Carry-ons of one request since its last accepted token, and attempts of it that workers failed.
  uint32_t max_stalled_carry_ons = 16;
  uint32_t max_failed_attempts = 8;
  uint64_t max_carry_on_tokens = 8192;  // recompute of carry-ons in flight, per worker
  // Under one prompt, which is suspect then; prompts under which workers died that are remembered
  // beyond their requests; for so long.
  uint32_t max_worker_deaths = 3;
  size_t max_suspect_prompts = 1024;
  uint32_t suspect_prompt_s = 600;
  size_t max_index_bytes = 256u << 20;  // what workers have cached
  uint32_t max_snapshots = 4;           // of their caches asked for at once
  uint32_t empty_pool_wait_ms = 1500;   // for a worker when none is ready
  uint64_t max_prefill_ahead = 65'536;  // prefill tokens at a worker before new requests wait here
};

}  // namespace quire
