// The rates that the HTTP/2 guard holds a connection to, as flags.
//
// Called by the schema; pure.
#pragma once

#include "common/config/schema.h"
#include "router/config.h"

namespace quire {

// A burst of several seconds' worth is free, by as much as clients come in bursts.
void AddHttp2Flags(config::Schema& schema, RouterConfig& config);

}  // namespace quire
