// What is checked of files and folders that flags name before the model is loaded, which takes
// longer.
#pragma once

#include "common/status.h"
#include "worker/config.h"

namespace quire {

// INVALID_ARGUMENT, NOT_FOUND and others name the flag and the file.
absl::Status CheckStartFiles(const WorkerConfig& config);

}  // namespace quire
