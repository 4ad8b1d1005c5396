// Flags of a worker's ports, certificates, ends and logs.
#pragma once

#include "common/config/schema.h"
#include "worker/config.h"

namespace quire {

void AddNetworkFlags(config::Schema& schema, WorkerConfig& config);

}  // namespace quire
