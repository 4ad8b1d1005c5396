// Models that --model, and the draft model of --speculative-config, give by name and not by path:
// hf:ORG/REPO, s3://BUCKET/PREFIX, a short name.
// The `quire` in this program's folder finds them on this machine, or pulls them.
#pragma once

#include <string>

#include "common/config/schema.h"
#include "common/status.h"
#include "worker/config.h"

namespace quire {

// Whether `model` is such a name: one with a scheme, or a word that is no file and no .gguf.
bool IsModelName(const std::string& model);

// Puts the folder or file in place of such names, for this process and for those of its ranks, and
// serves the model by its name unless the settings have another. Blocking, for as long as the model
// takes to come; the pull ends when this process does, and the next start continues it. `quire
// pull` says on standard error what it does and why it fails.
absl::Status UseNamedModel(const config::Environment& environment, WorkerConfig& settings);

}  // namespace quire
