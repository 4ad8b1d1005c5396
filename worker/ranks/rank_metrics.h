// The counters of a worker's ranks, and their names for Prometheus.
//
// Owner: main. Written on the group's supervising thread.
#pragma once

#include <array>
#include <cstdint>

#include "common/metrics/metrics.h"

namespace quire {

// Why a group of ranks went down.
enum class RankFailure : uint8_t {
  kDied,      // the process of a rank has ended
  kDeadline,  // a rank did not answer in time
  kDigest,    // ranks did not do the same
  kRank,      // a rank reported that it cannot continue: a collective or its device failed
  kDamaged,   // a rank sent invalid data
  kStart,     // the ranks could not be started
};
inline constexpr size_t kRankFailures = 6;

const char* RankFailureName(RankFailure failure);

struct RankMetrics {
  explicit RankMetrics(Metrics& metrics);

  Gauge& count;
  Gauge& ready;
  Gauge& device_memory;
  Gauge& device_memory_free;
  Counter& restarts;
  std::array<Counter*, kRankFailures> failures;
};

}  // namespace quire
