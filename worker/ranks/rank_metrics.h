// What the ranks of a worker count, and the names under which Prometheus sees it.
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
  kRank,      // a rank said that it cannot go on: a collective or its device failed
  kDamaged,   // what came from a rank makes no sense
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
