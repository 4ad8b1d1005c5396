// The first request of a worker, before any router: a real token through engine, runner, kernels.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/runtime/runtime.h"
#include "worker/engine/engine.h"

namespace quire {

// Makes the engine answer one request of one token; INTERNAL when no token came.
absl::Status RunCanary(Engine& engine, const std::string& model_id, const Clock& clock);

}  // namespace quire
