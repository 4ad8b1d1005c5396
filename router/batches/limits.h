// The limits of files and batches, and what shows that they were met.
//
// Limits are values; metrics are written on any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"

namespace quire::batches {

inline constexpr size_t kMaxMetadataPairs = 16;
inline constexpr size_t kMaxMetadataKeyBytes = 64;
inline constexpr size_t kMaxMetadataValueBytes = 512;
inline constexpr size_t kMaxFileNameBytes = 255;
inline constexpr size_t kMaxCreateBytes = 64u << 10;  // of the body that creates a batch
inline constexpr size_t kMaxShownFaults = 100;        // of a batch that failed
// Of what is shared by all tenants, one may have this part.
inline constexpr size_t kShareOfTenant = 2;

struct Limits {
  size_t max_file_bytes = size_t{10} << 30;  // of all files of all tenants, results included
  size_t max_files = 10'000;                 // of all tenants
  size_t max_lines = 50'000;                 // of one batch
  size_t max_open = 200;                     // batches that have not ended, of all tenants
  size_t max_kept = 1000;              // batches of one tenant; the oldest ended ones give way
  size_t max_running = 4;              // batches at once, on this router
  size_t max_in_flight = 32;           // requests of one batch at once
  int64_t window_seconds = 24 * 3600;  // of a batch, from its creation to its end
  Micros look_every = 5 * kMicrosPerSecond;  // for batches that another router left behind
  Micros save_every = kMicrosPerSecond;      // of a batch that runs: its counts, and its results
};

// A tenant's share of a limit.
inline size_t ShareOf(size_t limit) { return limit / kShareOfTenant; }

struct BatchMetrics {
  explicit BatchMetrics(Metrics& metrics);

  Gauge& files;
  Gauge& file_bytes;
  Gauge& open;
  Gauge& running;
  Gauge& in_flight;
  Counter& refused_files;
  Counter& refused_bytes;
  Counter& refused_open;
  Counter& refused_lines;
  Counter& forgotten;
  Counter& bad_uploads;
  Counter& disk_errors;
  Counter& lines_ok;
  Counter& lines_failed;
  Counter& lines_again;
  Counter& ended_completed;
  Counter& ended_failed;
  Counter& ended_expired;
  Counter& ended_cancelled;
};

}  // namespace quire::batches
