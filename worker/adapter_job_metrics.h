// What becomes of adapters at run time, in numbers.
//
// Owner: main, also where adapters stay as they are. Written on the rpc executor.
#pragma once

#include "common/metrics/metrics.h"

namespace quire {

struct AdapterJobMetrics {
  explicit AdapterJobMetrics(Metrics& metrics);

  Counter& loads;
  Counter& load_failures;
  Counter& switches;
  Counter& evictions;
  Counter& jobs_refused;
  Gauge& jobs;
  Gauge& contents;
  Gauge& broken;
  Histogram& load_seconds;
};

}  // namespace quire
