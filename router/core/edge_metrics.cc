#include "router/core/edge_metrics.h"

#include <string>

#include "common/http2_limits.h"

namespace quire {
namespace {

Counter& Add(Metrics& metrics, const char* name, const char* help) {
  return metrics.AddCounter({.name = name, .help = help});
}

Counter& AddResponses(Metrics& metrics, const char* status_class) {
  return metrics.AddCounter({.name = "quire_router_http_responses_total",
                             .help = "HTTP answers by class of status",
                             .labels = {{"class", status_class}}});
}

Counter& AddGuardClosed(Metrics& metrics, std::string_view limit) {
  return metrics.AddCounter({.name = "quire_router_http2_guard_closed_total",
                             .help = "HTTP/2 connections closed past a limit of the guard",
                             .labels = {{"limit", std::string(limit)}}});
}

Gauge& AddCertificateEnd(Metrics& metrics) {
  return metrics.AddGauge({"quire_router_certificate_not_after_seconds",
                           "When the certificate ends that is shown, since 1970; 0: none is.",
                           {{"shown_to", "clients"}}});
}

}  // namespace

TlsEdgeMetrics::TlsEdgeMetrics(Metrics& m)
    : tls_handshakes(Add(m, "quire_router_tls_handshakes_total", "TLS handshakes that ended well")),
      tls_handshake_failures(Add(m, "quire_router_tls_handshake_failures_total",
                                 "TLS handshakes that broke or came too slowly")),
      tls_handshakes_refused(Add(m, "quire_router_tls_handshakes_refused_total",
                                 "Connections closed as they came: handshakes had no more room")),
      tls_handshakes_evicted(Add(m, "quire_router_tls_handshakes_evicted_total",
                                 "Connections that gave way: others' handshakes had no room")),
      tls_idle_records(Add(m, "quire_router_tls_idle_records_closed_total",
                           "TLS connections closed: they sent record after record without a byte")),
      tls_certificate_end(AddCertificateEnd(m)),
      tls_reloads(Add(m, "quire_router_tls_reloads_total",
                      "Times that a changed TLS certificate came in force")),
      tls_reload_failures(Add(m, "quire_router_tls_reload_failures_total",
                              "Times that a TLS certificate or key was unreadable or wrong")) {}

PlaceMetrics::PlaceMetrics(Metrics& m)
    : connections_refused(Add(m, "quire_router_connections_refused_total",
                              "Connections refused because too many were open")),
      connections_gave_way(Add(m, "quire_router_connections_gave_way_total",
                               "Connections without a key that gave way to others while idle")),
      connections_of_address_refused(Add(m, "quire_router_connections_of_address_refused_total",
                                         "Connections refused: their address had its share")),
      proxy_headers_broken(Add(m, "quire_router_proxy_headers_broken_total",
                               "Connections of trusted proxies closed: no PROXY header")) {}

EdgeMetrics::EdgeMetrics(Metrics& m)
    : TlsEdgeMetrics(m),
      PlaceMetrics(m),
      connections_accepted(
          Add(m, "quire_router_connections_accepted_total", "Connections accepted")),
      connections_open(
          m.AddGauge({.name = "quire_router_connections_open", .help = "Connections open now"})),
      first_bytes_timeouts(Add(m, "quire_router_first_bytes_timeouts_total",
                               "Connections closed because nothing came on them")),
      http_requests(Add(m, "quire_router_http_requests_total", "HTTP requests read whole")),
      http_responses_2xx(AddResponses(m, "2xx")),
      http_responses_4xx(AddResponses(m, "4xx")),
      http_responses_5xx(AddResponses(m, "5xx")),
      http_headers_too_large(Add(m, "quire_router_http_headers_too_large_total",
                                 "Requests refused because of their headers' size")),
      http_bodies_too_large(Add(m, "quire_router_http_bodies_too_large_total",
                                "Requests refused because of their body's size")),
      bodies_refused(Add(m, "quire_router_bodies_refused_total",
                         "Requests refused since those that wait to be read hold too many bytes")),
      http_request_timeouts(Add(m, "quire_router_http_request_timeouts_total",
                                "Requests refused because they came too slowly")),
      http_idle_closed(Add(m, "quire_router_http_idle_connections_closed_total",
                           "Connections closed because they stayed open without a request")),
      http_write_timeouts(Add(m, "quire_router_http_write_timeouts_total",
                              "Clients given up because they took their answer too slowly")),
      http_lingers_cut(Add(m, "quire_router_http_lingers_cut_total",
                           "Connections closed at once: too much came after their last answer")),
      http_unknown_fields(Add(m, "quire_router_http_unknown_fields_total",
                              "Unknown JSON fields of requests, ignored")),
      tools_left_out(
          Add(m, "quire_router_tools_left_out_total",
              "Tools of requests that the model was not shown: they run at their maker")),
      client_disconnects(Add(m, "quire_router_client_disconnects_total",
                             "HTTP clients that left before their answer's end")),
      stream_error_events(Add(m, "quire_router_stream_error_events_total",
                              "HTTP streams that ended in an error event")),
      grpc_requests(Add(m, "quire_router_grpc_requests_total", "gRPC calls begun")),
      grpc_errors(Add(m, "quire_router_grpc_errors_total", "gRPC calls that ended in an error")),
      grpc_cancelled(Add(m, "quire_router_grpc_cancelled_total",
                         "gRPC calls cancelled by their client or deadline")),
      grpc_stream_requests(Add(m, "quire_router_grpc_stream_requests_total",
                               "Requests read from ModelStreamInfer calls")),
      grpc_stream_request_errors(Add(m, "quire_router_grpc_stream_request_errors_total",
                                     "Requests of ModelStreamInfer calls that ended in an error")),
      grpc_stream_pauses(Add(m, "quire_router_grpc_stream_pauses_total",
                             "Times that a ModelStreamInfer call was not read from, since too many "
                             "of its answers wait to be taken")),
      grpc_messages_too_large(Add(m, "quire_router_grpc_messages_too_large_total",
                                  "gRPC calls refused because of a message's size")),
      grpc_message_timeouts(Add(m, "quire_router_grpc_message_timeouts_total",
                                "gRPC calls ended because a message came too slowly")),
      grpc_method_calls_refused(
          Add(m, "quire_router_grpc_method_calls_refused_total",
              "gRPC calls refused: too many of their method ran on their connection")),
      http2_connections_aged(Add(m, "quire_router_http2_connections_aged_total",
                                 "HTTP/2 connections left because of their age")),
      http2_connections(Add(m, "quire_router_http2_connections_total", "HTTP/2 connections begun")),
      http2_streams_over_limit(Add(m, "quire_router_http2_streams_over_limit_total",
                                   "gRPC calls refused because too many were open on their "
                                   "connection")),
      http2_idle_closed(Add(m, "quire_router_http2_idle_connections_closed_total",
                            "HTTP/2 connections left because they stayed open without a call")) {
  for (const std::string_view limit : kHttp2Limits) {
    http2_guard_closed[limit] = &AddGuardClosed(m, limit);
  }
}

}  // namespace quire
