// What the edge counts, by name: every limit and refusal of the ports, for HTTP and gRPC.
//
// Owner: main; any thread may count. References live as long as the Metrics they were added to.
#pragma once

#include <map>
#include <string_view>

#include "common/metrics/metrics.h"

namespace quire {

struct TlsEdgeMetrics {
  explicit TlsEdgeMetrics(Metrics& metrics);

  Counter& tls_handshakes;          // handshakes that succeeded
  Counter& tls_handshake_failures;  // handshakes that were broken or too slow
  Counter& tls_handshakes_refused;  // new connections refused: over --max-tls-handshakes, or the
                                    // queue was full
  Counter& tls_handshakes_evicted;  // connections with a handshake under way that were closed for
                                    // new ones
  Counter& tls_idle_records;        // connections: too many records in a row without a byte
  Gauge& tls_certificate_end;
  Counter& tls_reloads;
  Counter& tls_reload_failures;
};

// Connections that found no place, or lost theirs.
struct PlaceMetrics {
  explicit PlaceMetrics(Metrics& metrics);

  Counter& connections_refused;             // over --max-connections
  Counter& connections_gave_way;            // closed for new ones: without a key and idle
  Counter& connections_of_address_refused;  // over --max-connections-per-address
  Counter& proxy_headers_broken;            // connections of trusted proxies
};

struct EdgeMetrics : TlsEdgeMetrics, PlaceMetrics {
  explicit EdgeMetrics(Metrics& metrics);

  Counter& connections_accepted;
  Gauge& connections_open;
  Counter& first_bytes_timeouts;  // sent nothing before the deadline
  Counter& http_requests;
  Counter& http_responses_2xx;
  Counter& http_responses_4xx;
  Counter& http_responses_5xx;
  Counter& http_headers_too_large;
  Counter& http_bodies_too_large;
  Counter& bodies_refused;         // all bodies that wait to be parsed were too large together
  Counter& http_request_timeouts;  // headers or body came too slowly
  Counter& http_idle_closed;       // open for too long without a request
  Counter& http_write_timeouts;    // the client read nothing for too long, or far too little
  Counter& http_lingers_cut;       // more came after a connection's end than is read
  Counter& http_unknown_fields;    // JSON fields that were ignored
  Counter& tools_left_out;         // of requests: those that run elsewhere, which no model is shown
  Counter& client_disconnects;     // while an answer was under way
  Counter& stream_error_events;
  Counter& grpc_requests;
  Counter& grpc_errors;
  Counter& grpc_cancelled;        // cancelled by the client or its deadline
  Counter& grpc_stream_requests;  // requests of ModelStreamInfer calls
  Counter& grpc_stream_request_errors;
  Counter& grpc_stream_pauses;  // pauses in reading because clients do not read their answers
  Counter& grpc_messages_too_large;
  Counter& grpc_message_timeouts;      // calls whose client's message came too slowly
  Counter& grpc_method_calls_refused;  // too many calls of one method ran on their connection
  Counter& http2_connections_aged;     // closed because of their age
  Counter& http2_connections;
  Counter& http2_streams_over_limit;  // refused: more than the client may open
  Counter& http2_idle_closed;         // open for too long without a call
  // Connections past a limit of the guard, by its name.
  std::map<std::string_view, Counter*> http2_guard_closed;
};

}  // namespace quire
