// What the settings mean for the parts that the router process is made of.
//
// Pure; any thread.
#pragma once

#include "router/config.h"

namespace quire {

// With what follows from other settings.
GrpcEdgeLimits GrpcEdgeLimitsOf(const RouterConfig& config);

// The ports for clients, for operators, and of metrics.
FrontOptions FrontOf(const RouterConfig& config);
FrontOptions AdminFrontOf(const RouterConfig& config);
FrontOptions MetricsFrontOf(const RouterConfig& config);

}  // namespace quire
