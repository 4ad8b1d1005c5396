#include "router/process_options.h"

#include "router/chat/bundle_text.h"
#include "router/http2_flags.h"

namespace quire {
namespace {

constexpr size_t kMaxAdminConnections = 16;
constexpr size_t kMaxMetricsConnections = 64;  // on a port of their own

}  // namespace

Micros MicrosOf(config::Duration duration) { return duration.milliseconds * kMicrosPerMilli; }

HttpLimits HttpLimitsOf(const RouterConfig& config) {
  HttpLimits limits;
  limits.max_header_bytes = static_cast<size_t>(config.max_header.value);
  limits.max_body_bytes = static_cast<size_t>(config.max_body.value);
  limits.max_total_body_bytes = static_cast<size_t>(config.max_total_body.value);
  limits.header_timeout = MicrosOf(config.header_timeout);
  limits.body_timeout = MicrosOf(config.body_timeout);
  limits.idle_timeout = MicrosOf(config.idle_timeout);
  limits.write_timeout = MicrosOf(config.slow_client_timeout);
  limits.min_read_bytes_per_second = static_cast<size_t>(config.slow_client_rate.value);
  limits.sse_commit_after = MicrosOf(config.sse_commit_after);
  limits.sse_keep_alive = MicrosOf(config.stream_keep_alive);
  return limits;
}

RequestLimits RequestLimitsOf(const RouterConfig& config, LimitCounters& counters) {
  RequestLimits limits;
  limits.max_prompts = static_cast<size_t>(config.max_prompts);
  limits.max_messages = static_cast<size_t>(config.max_messages);
  limits.max_json_depth = static_cast<size_t>(config.max_json_depth);
  limits.max_json_values = static_cast<size_t>(config.max_json_values);
  limits.max_prompt_bytes = static_cast<size_t>(config.max_prompt.value);
  limits.max_choices = config.max_choices;
  limits.max_request_choices = static_cast<size_t>(config.max_request_choices);
  limits.max_stop_strings = static_cast<size_t>(config.max_stop_strings);
  limits.max_logit_bias = static_cast<size_t>(config.max_logit_bias);
  limits.counters = &counters;
  return limits;
}

GrpcEdgeLimits GrpcEdgeLimitsOf(const RouterConfig& config) {
  GrpcEdgeLimits limits;
  limits.max_concurrent_streams = static_cast<uint32_t>(config.max_streams_per_connection);
  limits.max_requests_per_call = static_cast<size_t>(config.max_requests_per_call);
  limits.message_timeout = MicrosOf(config.body_timeout);
  limits.keep_alive = MicrosOf(config.stream_keep_alive);
  limits.idle_timeout = MicrosOf(config.idle_timeout);
  limits.write_timeout = MicrosOf(config.slow_client_timeout);
  limits.max_connection_age = MicrosOf(config.max_connection_age);
  limits.max_connection_age_grace = MicrosOf(config.max_connection_age_grace);
  limits.taken_step = TakenStepOf(static_cast<uint64_t>(config.window_tokens));
  limits.max_receive_bytes = static_cast<size_t>(config.max_body.value);
  limits.max_metadata_bytes = static_cast<uint32_t>(config.max_header.value);
  limits.guard = GuardLimitsOf(config);
  return limits;
}

FrontOptions AdminFrontOf(const RouterConfig& config) {
  FrontOptions options;
  options.ports = {{static_cast<uint16_t>(config.admin_port), "--admin-port"}};
  options.max_connections = kMaxAdminConnections;
  options.first_bytes_timeout = MicrosOf(config.header_timeout);
  return options;
}

FrontOptions MetricsFrontOf(const RouterConfig& config) {
  FrontOptions options;
  options.host = config.host;
  options.ports = {{static_cast<uint16_t>(config.metrics_port), "--metrics-port"}};
  options.max_connections = kMaxMetricsConnections;
  options.first_bytes_timeout = MicrosOf(config.header_timeout);
  return options;
}

FrontOptions FrontOf(const RouterConfig& config) {
  FrontOptions options;
  options.host = config.host;
  options.ports = {{static_cast<uint16_t>(config.port), "--port"},
                   {static_cast<uint16_t>(config.grpc_port), "--grpc-port", true}};
  options.max_connections = static_cast<size_t>(config.max_connections);
  options.max_connections_per_address = static_cast<size_t>(config.max_connections_per_address);
  options.first_bytes_timeout = MicrosOf(config.header_timeout);
  options.max_tls_handshakes = static_cast<size_t>(config.max_tls_handshakes);
  options.tls_handshake_timeout = MicrosOf(config.header_timeout);
  return options;
}

PipelineOptions PipelineOf(const RouterConfig& config) {
  PipelineOptions options;
  options.workers = config.workers;
  options.routing_policy = config.routing_policy;
  options.generation_defaults = config.generation_config == "auto";
  options.worker_silence_ms = static_cast<uint32_t>(config.worker_silence_ms);
  options.limits.max_live_requests = static_cast<uint32_t>(config.max_live_requests);
  options.limits.max_queued_requests = static_cast<uint32_t>(config.max_queued_requests);
  options.limits.max_queued_per_tenant =
      static_cast<uint32_t>(config.max_queued_per_tenant == 0 ? config.max_queued_requests
                                                              : config.max_queued_per_tenant);
  options.limits.max_prefill_ahead = static_cast<uint64_t>(config.max_prefill_ahead);
  options.limits.max_journal_bytes = static_cast<uint64_t>(config.max_journal.value);
  options.limits.max_snapshots = static_cast<uint32_t>(config.max_snapshots);
  options.limits.window_tokens = static_cast<uint32_t>(config.window_tokens);
  options.limits.max_index_bytes = static_cast<size_t>(config.max_index.value);
  options.limits.max_prompt_bytes = static_cast<size_t>(config.max_prompt.value);
  options.limits.max_response_bytes = static_cast<size_t>(config.max_response.value);
  options.limits.max_carry_on_tokens = static_cast<uint64_t>(config.max_carry_on_tokens);
  options.limits.placement_retry_percent = static_cast<uint32_t>(config.placement_retry_percent);
  options.limits.max_worker_deaths = static_cast<uint32_t>(config.max_worker_deaths);
  options.limits.max_suspect_prompts = static_cast<size_t>(config.max_suspect_prompts);
  options.limits.empty_pool_wait_ms = static_cast<uint32_t>(config.empty_pool_wait.milliseconds);
  options.max_waiting_prompt_bytes = static_cast<size_t>(config.max_total_body.value);
  options.ready_without_workers = config.ready_without_workers;
  options.carry_on_exact = config.carry_on == "exact";
  options.text_factory = MakeBundleText;
  return options;
}

}  // namespace quire
