// Gauges of the process that main adds, read when metrics are rendered.
//
// Main's thread; what they name outlives the metrics.
#pragma once

#include <string>

#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "worker/core/engine_io.h"

namespace quire {

// The age of the engine's last work, for observers outside.
void AddStepAges(Metrics& metrics, const StepProgress& progress, const Clock& clock);

// The expiry of the file, which will be shown next.
void AddCertificateEnd(Metrics& metrics, const std::string& path);

}  // namespace quire
