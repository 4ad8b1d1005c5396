// Sends the requests of a batch, a bounded number at a time, until each has its line in the output.
//
// Blocking, on the calling thread, which starts a thread for each request that may be under way and
// joins them all.
//  1. A request is sent again while the server is away or overloaded; every other answer is its
//     result.
//  2. What is cancelled, or given up because the server stays away, has no line, so that the next
//     run sends it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "cli/ask.h"
#include "common/batch/batch_input.h"
#include "common/batch/batch_output.h"
#include "common/status.h"

namespace quire::cli {

inline constexpr int64_t kMaxBatchInFlight = 1024;

struct BatchCounts {
  size_t total = 0;    // requests of the input
  size_t written = 0;  // that have their line, with those of earlier runs
  size_t failed = 0;   // of these: an error, or a status that is none of success
};

struct BatchOptions {
  AskOptions server;  // model: of requests that name none; empty: they stay as they are
  int64_t max_in_flight = 128;
  int32_t priority = std::numeric_limits<int32_t>::max();  // goes last; 0: none is set
  int64_t patience_ms = 300'000;  // with no answer to anything; then the run is given up
  std::function<void(const BatchCounts&)> show;  // called a few times a second
};

// INVALID_ARGUMENT: the output is of another input. UNAVAILABLE: the server stays away. CANCELLED:
// interrupted. `counts` is right in every case.
absl::Status RunBatch(const batch::BatchInput& input, batch::BatchOutput& output,
                      const BatchOptions& options, const std::atomic<bool>& cancelled,
                      BatchCounts& counts);

}  // namespace quire::cli
