// What the edge counts, by name: every limit and refusal of the ports, HTTP and gRPC.
//
// Owner: main; any thread may count. References live as long as the Metrics they were added to.
#pragma once

#include <map>
#include <string_view>

#include "common/metrics/metrics.h"

namespace quire {

struct TlsEdgeMetrics {
  explicit TlsEdgeMetrics(Metrics& metrics);

  Counter& tls_handshakes;          // that ended well
  Counter& tls_handshake_failures;  // broken, or too slow
  Counter& tls_handshakes_refused;  // who came: over --max-tls-handshakes, or to a full queue
  Counter& tls_handshakes_evicted;  // who kept one waiting, for who came
  Counter& tls_idle_records;        // connections: too many records in a row without a byte
  Gauge& tls_certificate_end;
  Counter& tls_reloads;
  Counter& tls_reload_failures;
};

// Of connections that found no place, or lost it.
struct PlaceMetrics {
  explicit PlaceMetrics(Metrics& metrics);

  Counter& connections_refused;             // over --max-connections
  Counter& connections_gave_way;            // without a key and idle, for who came
  Counter& connections_of_address_refused;  // over --max-connections-per-address
  Counter& proxy_headers_broken;            // of trusted proxies
};

struct EdgeMetrics : TlsEdgeMetrics, PlaceMetrics {
  explicit EdgeMetrics(Metrics& metrics);

  Counter& connections_accepted;
  Gauge& connections_open;
  Counter& first_bytes_timeouts;  // said nothing before the deadline
  Counter& http_requests;
  Counter& http_responses_2xx;
  Counter& http_responses_4xx;
  Counter& http_responses_5xx;
  Counter& http_headers_too_large;
  Counter& http_bodies_too_large;
  Counter& bodies_refused;         // those of all clients that wait to be read were too large
  Counter& http_request_timeouts;  // headers or body came too slowly
  Counter& http_idle_closed;       // open for too long without a request
  Counter& http_write_timeouts;    // the client took nothing for too long, or far too little
  Counter& http_unknown_fields;    // JSON fields that were ignored
  Counter& client_disconnects;     // while an answer was under way
  Counter& stream_error_events;
  Counter& grpc_requests;
  Counter& grpc_errors;
  Counter& grpc_cancelled;        // by the client or its deadline
  Counter& grpc_stream_requests;  // of ModelStreamInfer calls
  Counter& grpc_stream_request_errors;
  Counter& grpc_stream_pauses;  // of reading, since their clients take no answers
  Counter& grpc_messages_too_large;
  Counter& grpc_message_timeouts;      // calls whose client's message came too slowly
  Counter& grpc_method_calls_refused;  // too many of one method ran on their connection
  Counter& http2_connections_aged;     // left because of their age
  Counter& http2_connections;
  Counter& http2_streams_over_limit;  // refused: more than the client was told that it may open
  Counter& http2_idle_closed;         // open for too long without a call
  // Connections past a limit of the guard, by its name.
  std::map<std::string_view, Counter*> http2_guard_closed;
};

}  // namespace quire
