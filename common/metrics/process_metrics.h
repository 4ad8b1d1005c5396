// The metrics that every process has about itself, under the names that Prometheus' own clients
// use.
#pragma once

#include <cstdint>

#include "common/metrics/metrics.h"

namespace quire {

// Adds process_* and quire_build_info{program, version}, read whenever metrics are rendered.
// `unix_seconds`: when the process started.
void AddProcessMetrics(Metrics& metrics, const char* program, int64_t unix_seconds);

}  // namespace quire
