// The options of an engine: the settings of quire-worker that have a meaning without a network, as
// a JSON object.
//
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "common/log/log.h"
#include "common/status.h"
#include "worker/config.h"

namespace quire {

struct EngineSettings {
  WorkerConfig worker;
  LogLevel log_level = LogLevel::kWarning;
};

// INVALID_ARGUMENT names the member and what would be right.
absl::StatusOr<EngineSettings> ReadEngineSettings(std::string_view options);

}  // namespace quire
