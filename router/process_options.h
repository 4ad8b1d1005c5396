// What the settings mean for the parts that the router process is made of.
//
// Pure; any thread.
#pragma once

#include "router/config.h"
#include "router/core/request_limits.h"
#include "router/front/front.h"
#include "router/grpc/services.h"
#include "router/http/services.h"
#include "router/pipeline/make_pipeline.h"

namespace quire {

Micros MicrosOf(config::Duration duration);

HttpLimits HttpLimitsOf(const RouterConfig& config);
RequestLimits RequestLimitsOf(const RouterConfig& config, LimitCounters& counters);
GrpcEdgeLimits GrpcEdgeLimitsOf(const RouterConfig& config);
PipelineOptions PipelineOf(const RouterConfig& config);

// The ports for clients, for operators, and of metrics.
FrontOptions FrontOf(const RouterConfig& config);
FrontOptions AdminFrontOf(const RouterConfig& config);
FrontOptions MetricsFrontOf(const RouterConfig& config);

}  // namespace quire
