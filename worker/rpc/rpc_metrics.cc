#include "worker/rpc/rpc_metrics.h"

#include <string>

#include "worker/core/refusal_names.h"

namespace quire {
namespace {

Counter& Add(Metrics& metrics, const std::string& name, const char* help) {
  return metrics.AddCounter({"quire_worker_" + name, help});
}

std::map<std::string_view, Counter*> AddGuard(Metrics& metrics) {
  std::map<std::string_view, Counter*> closed;
  for (const std::string_view limit : kHttp2Limits) {
    closed[limit] = &metrics.AddCounter({"quire_worker_http2_guard_closed_total",
                                         "Connections closed past a limit of the guard.",
                                         {{"limit", std::string(limit)}}});
  }
  return closed;
}

GrpcCounters AddGrpc(Metrics& metrics) {
  return {.connections = Add(metrics, "http2_connections_total", "HTTP/2 connections begun."),
          .idle_closed = Add(metrics, "http2_idle_connections_closed_total",
                             "Connections left because they stayed open without a call."),
          .streams_over_limit = Add(metrics, "http2_streams_over_limit_total",
                                    "Calls refused: too many were open on their connection."),
          .metadata_too_large =
              Add(metrics, "grpc_metadata_too_large_total", "Calls refused for their metadata."),
          .messages_too_large = Add(metrics, "grpc_messages_too_large_total",
                                    "Calls ended because of a message's size."),
          .message_timeouts = Add(metrics, "grpc_message_timeouts_total",
                                  "Calls ended because a message came too slowly."),
          .bodies_refused = Add(metrics, "grpc_messages_refused_total",
                                "Calls ended since messages that wait hold too many bytes."),
          .method_calls_refused =
              Add(metrics, "grpc_method_calls_refused_total",
                  "Calls refused: too many of their method ran on their connection."),
          .aged = Add(metrics, "http2_connections_aged_total",
                      "Connections left because of their age; routers' are not."),
          .write_timeouts = Add(metrics, "http2_write_timeouts_total",
                                "Calls and connections given up: nothing was taken from them."),
          .lingers_cut = Add(metrics, "http2_lingers_cut_total",
                             "Connections closed at once: too much came after their end."),
          .guard_closed = AddGuard(metrics)};
}

}  // namespace

RpcMetrics::RpcMetrics(Metrics& metrics)
    : frames_received(metrics.AddCounter(
          {"quire_worker_rpc_frames_received_total", "Frames received from routers."})),
      frames_sent(
          metrics.AddCounter({"quire_worker_rpc_frames_sent_total", "Frames sent to routers."})),
      bytes_sent(
          metrics.AddCounter({"quire_worker_rpc_bytes_sent_total", "Bytes of frames sent."})),
      attaches(
          metrics.AddCounter({"quire_worker_attaches_total", "Attaches accepted from routers."})),
      attaches_refused(
          metrics.AddCounter({"quire_worker_attaches_refused_total", "Attaches refused."})),
      attaches_fenced(metrics.AddCounter({"quire_worker_attaches_fenced_total",
                                          "Attaches ended by a newer one of their router."})),
      routers_lost(metrics.AddCounter(
          {"quire_worker_routers_lost_total", "Attaches that ended, for whatever reason."})),
      protocol_errors(metrics.AddCounter(
          {"quire_worker_rpc_protocol_errors_total", "Attaches ended because of a wrong frame."})),
      stale_words(
          metrics.AddCounter({"quire_worker_rpc_stale_words_total",
                              "Words of the engine about attempts of an older Attach; not sent."})),
      unsent_limit_hits(
          metrics.AddCounter({"quire_worker_rpc_unsent_limit_hits_total",
                              "Attaches ended because their router read too slowly."})),
      events_dropped(metrics.AddCounter(
          {"quire_worker_rpc_events_dropped_total", "Times that cache events were dropped."})),
      routers_attached(
          metrics.AddGauge({"quire_worker_routers_attached", "Routers attached now."})),
      connections_refused(Add(metrics, "connections_refused_total",
                              "Connections closed as they came: too many were open.")),
      grpc(AddGrpc(metrics)),
      tls{.handshakes = Add(metrics, "tls_handshakes_total", "TLS handshakes that ended well."),
          .handshake_failures = Add(metrics, "tls_handshake_failures_total",
                                    "TLS handshakes that broke or came too slowly."),
          .handshakes_refused =
              Add(metrics, "tls_handshakes_refused_total",
                  "Connections closed as they came: handshakes had no more room."),
          .idle_records = Add(metrics, "tls_idle_records_closed_total",
                              "Connections closed: they sent record after record without a byte.")},
      tls_handshakes_evicted(Add(metrics, "tls_handshakes_evicted_total",
                                 "Connections that gave way: others' handshakes had no room.")),
      tls_files{.reloads = Add(metrics, "tls_reloads_total",
                               "Times that changed TLS files came in force."),
                .reload_failures = Add(metrics, "tls_reload_failures_total",
                                       "Times that TLS files were unreadable or wrong."),
                .names_refused = Add(metrics, "tls_names_refused_total",
                                     "Handshakes refused: the certificate is no router's.")} {
  for (size_t code = 0; code < refusals.size(); ++code) {
    refusals[code] = &metrics.AddCounter({"quire_worker_rpc_refusals_total",
                                          "Submits refused, by reason.",
                                          {{"code", std::string(kRefusalNames[code])}}});
  }
}

}  // namespace quire
