// The rates that the HTTP/2 guard holds a connection to, as flags.
//
// Called by the schema; pure.
#pragma once

#include "common/config/schema.h"
#include "router/config.h"

namespace quire {

// A burst of several seconds' worth is free, to match the bursts of real clients.
void AddHttp2Flags(config::Schema& schema, RouterConfig& config);

}  // namespace quire
