// The rates that the HTTP/2 guard holds a connection to, as flags.
//
// Called by the schema and by the router process; pure.
#pragma once

#include "common/config/schema.h"
#include "common/grpc/http2_guard.h"
#include "router/config.h"

namespace quire {

void AddHttp2Flags(config::Schema& schema, RouterConfig& config);
// A burst of several seconds' worth is free, by as much as clients come in bursts.
GuardLimits GuardLimitsOf(const RouterConfig& config);

}  // namespace quire
