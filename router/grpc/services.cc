#include "router/grpc/services.h"

#include "router/grpc/auth.h"

namespace quire {

GrpcHost MakeGrpcHost(const GrpcServices& services) {
  EdgeMetrics& counted = services.counters;
  return {.executor = services.executor,
          .log = services.log,
          .counters = {.connections = counted.http2_connections,
                       .idle_closed = counted.http2_idle_closed,
                       .streams_over_limit = counted.http2_streams_over_limit,
                       .metadata_too_large = counted.http_headers_too_large,
                       .messages_too_large = counted.grpc_messages_too_large,
                       .message_timeouts = counted.grpc_message_timeouts,
                       .bodies_refused = counted.bodies_refused,
                       .method_calls_refused = counted.grpc_method_calls_refused,
                       .aged = counted.http2_connections_aged,
                       .write_timeouts = counted.http_write_timeouts,
                       .lingers_cut = counted.http_lingers_cut,
                       .guard_closed = counted.http2_guard_closed},
          .limits = services.limits,
          .background = &services.background,
          .refuse = [keys = services.keys](const auto& head,
                                           ClientSeat& seat) { return CheckKey(head, keys, seat); },
          .owner = [keys = services.keys](const auto& head) { return OwnerOf(head, keys); },
          .limit_names = {.metadata = " (--max-header-bytes)",
                          .message_time = " (--body-timeout)",
                          .connection_memory = " (--max-connection-memory-bytes)",
                          .tenant_memory = " (--max-tenant-memory-bytes)",
                          .client_memory = " (--max-client-memory-bytes)"},
          .rng = &services.rng,
          .tenant_memory =
              [keys = services.keys, pipeline = &services.pipeline](const auto& head) {
                return pipeline->MemoryOf(TenantIn(head, keys).get());
              },
          .memory = services.memory,
          .bodies = services.bodies};
}

}  // namespace quire
