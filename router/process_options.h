// Derives the options of the router process's parts from the settings.
//
// Pure; any thread.
#pragma once

#include "router/config.h"

namespace quire {

// Connections to the port for operators, and to that of metrics; the oldest idle one gives way.
inline constexpr size_t kMaxAdminConnections = 16;
inline constexpr size_t kMaxMetricsConnections = 64;

// With the values that follow from other settings.
GrpcEdgeLimits GrpcEdgeLimitsOf(const RouterConfig& config);

// The ports for clients, for operators, and of metrics.
FrontOptions FrontOf(const RouterConfig& config);
FrontOptions AdminFrontOf(const RouterConfig& config);
FrontOptions MetricsFrontOf(const RouterConfig& config);

}  // namespace quire
