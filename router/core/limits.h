// The router's named limits in one place: each queue, retry and buffer has one.
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
  uint32_t max_live_requests = 4096;        // accepted and not yet ended
  uint32_t max_queued_requests = 1024;      // live requests that wait for room at a worker
  uint32_t max_queued_per_tenant = 0;       // queued requests of one tenant; 0: no limit of its own
  uint64_t max_journal_bytes = 256u << 20;  // accepted tokens of all running answers
  uint32_t max_tenants = 4096;              // with requests, or quotas in use
  uint32_t max_tenant_labels = 100;         // in metrics; the rest is "other"
  uint32_t max_workers = 1024;              // known at once
  uint32_t max_pools = 1024;                // names of models and adapters, each with its model
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
  // Second attempts of one request that was refused or failed before anything was accepted; and of
  // all requests together, as a percentage of them that accumulates up to a burst.
  uint32_t max_placement_retries = 3;
  uint32_t placement_retry_percent = 10;
  uint32_t placement_retry_burst = 10;
  // How often one request may be resumed since its last accepted token, and how many of its
  // attempts workers may fail.
  uint32_t max_stalled_carry_ons = 16;
  uint32_t max_failed_attempts = 8;
  uint64_t max_carry_on_tokens = 8192;  // recompute of resumed requests in flight, per worker
  // Worker deaths under one prompt, which is then suspect; prompts under which workers died that
  // are remembered beyond their requests; how long they are remembered.
  uint32_t max_worker_deaths = 3;
  size_t max_suspect_prompts = 1024;
  uint32_t suspect_prompt_s = 600;
  size_t max_index_bytes = 256u << 20;  // the index of what workers have cached
  uint32_t max_snapshots = 4;           // cache snapshots requested at once
  uint32_t empty_pool_wait_ms = 1500;   // how long requests wait for a worker when none is ready
  uint64_t max_prefill_ahead = 65'536;  // prefill tokens at a worker before new requests wait here
};

}  // namespace quire
