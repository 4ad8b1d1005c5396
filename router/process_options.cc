#include "router/process_options.h"

#include <algorithm>

namespace quire {
namespace {

// A block of --max-header-bytes that refers to nothing decodes to less.
constexpr size_t kDecodedTimes = 16;

}  // namespace

GrpcEdgeLimits GrpcEdgeLimitsOf(const RouterConfig& config) {
  GrpcEdgeLimits limits = config.grpc;
  limits.taken_step = TakenStepOf(config.pipeline.limits.window_tokens);
  limits.guard.max_decoded_block_bytes =
      std::max(limits.guard.max_decoded_block_bytes, kDecodedTimes * config.http.max_header_bytes);
  return limits;
}

FrontOptions AdminFrontOf(const RouterConfig& config) {
  FrontOptions options;
  options.ports = {{static_cast<uint16_t>(config.admin_port), "--admin-port"}};
  options.max_connections = kMaxAdminConnections;
  options.first_bytes_timeout = config.front.first_bytes_timeout;
  return options;
}

FrontOptions MetricsFrontOf(const RouterConfig& config) {
  FrontOptions options;
  options.host = config.front.host;
  options.ports = {{static_cast<uint16_t>(config.metrics_port), "--metrics-port"}};
  options.max_connections = kMaxMetricsConnections;
  options.first_bytes_timeout = config.front.first_bytes_timeout;
  return options;
}

FrontOptions FrontOf(const RouterConfig& config) {
  FrontOptions options = config.front;
  options.ports = {{static_cast<uint16_t>(config.port), "--port"},
                   {static_cast<uint16_t>(config.grpc_port), "--grpc-port", true}};
  return options;
}

}  // namespace quire
