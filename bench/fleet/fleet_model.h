// A fleet in virtual time: the real index, policies and placement of one or several routers, over
// workers that are no more than a cost of prefill and decode, and a cache of blocks.
//
// Owner: a bench or a test; one thread, no real time. Runs of equal options are equal.
//  1. Routers learn of a worker's caches and load through its frames alone, each some time after it
//     was sent, in order; they learn nothing of each other.
//  2. A worker looks up its cache when it admits the request, by the same rule, and reports the
//     result to the router that sent it, which compares it with its prediction.
#pragma once

#include <cstdint>
#include <string>

#include "common/runtime/runtime.h"

namespace quire::bench {

struct FleetModelOptions {
  std::string policy = "prefix-aware";
  int32_t workers = 64;
  int32_t routers = 1;     // a request comes to one of them, drawn at random
  int32_t groups = 1024;   // of requests that begin alike
  double skew = 0.8;       // popularity of the i-th group: 1 / i^skew
  int32_t prefix = 2048;   // tokens that a group shares
  int32_t question = 128;  // tokens of each request's own
  int32_t output = 128;    // tokens that each writes
  int32_t requests = 20'000;
  int32_t warm_up = 5'000;       // of these, not counted
  double per_second = 850;       // arrivals, at random
  int64_t cache_blocks = 6'000;  // of each worker
  Micros frame_delay = 2'000;    // from worker to router, up to half as much again
  uint64_t seed = 1;
  // The time of a worker's step: a fixed part, a part for each row and one for each token of
  // prefill. A step takes at most `step_tokens` of prefill.
  double step_us = 8'000;
  double row_us = 60;
  double prefill_us = 40;
  int32_t step_tokens = 2048;
  int32_t max_rows = 64;
};

struct FleetModelResult {
  // Cached prompt tokens over all of the prompts, and over what one cache with the room of all
  // would have had of the same requests, each computed in no time.
  double hit_rate = 0;
  double hit_rate_over_oracle = 0;
  // Work of the busiest worker over the mean of all: time spent on rows and prefill.
  double load_spread = 0;
  double first_token_ms_mean = 0;
  double first_token_ms_p99 = 0;
  double seconds = 0;  // of virtual time
  uint64_t predictions_exact = 0;
  uint64_t predictions_raced = 0;
  uint64_t predictions_wrong = 0;
};

FleetModelResult RunFleetModel(const FleetModelOptions& options);

}  // namespace quire::bench
