// What the HTTP edge is given: its limits, and who may see what.
//
// Owner: main; outlives every session. Event loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/edge/services.h"

namespace quire {

struct AdminActions;
struct RouteTable;
const RouteTable& PublicRoutes();

struct HttpLimits {
  size_t max_header_bytes = 64u << 10;
  size_t max_body_bytes = 32u << 20;
  size_t max_total_body_bytes = 1u << 30;           // of all requests that are not parsed yet
  size_t max_connection_memory_bytes = 256u << 20;  // of all that one connection makes us hold
  size_t max_pipelined_bytes = 64u << 10;           // read ahead while an answer is under way
  size_t max_write_buffer_bytes = 16u << 20;        // beyond it the client is given up
  size_t max_prompt_logprobs = 131'072;             // of one answer: every time they are written
  size_t background_parse_bytes = 256u << 10;       // larger bodies are parsed off the event loop
  size_t background_write_bytes = 64u << 10;        // larger answers of texts are written off it
  Micros header_timeout = 10 * kMicrosPerSecond;  // from a request's first byte to its headers' end
  Micros body_timeout = 60 * kMicrosPerSecond;    // for the whole body
  Micros idle_timeout = 75 * kMicrosPerSecond;    // between requests of a connection
  Micros write_timeout = 30 * kMicrosPerSecond;   // the client takes too little, by the next
  size_t min_read_bytes_per_second = 4096;        // of an answer that waits to be taken
  Micros linger_timeout = 2 * kMicrosPerSecond;   // reading on after a refusal, so that it arrives
  Micros sse_commit_after = 10 * kMicrosPerSecond;
  Micros sse_keep_alive = 15 * kMicrosPerSecond;
};

struct HttpServices : EdgeServices {
  HttpServices(EdgeServices edge, const HttpLimits& edge_limits)
      : EdgeServices(std::move(edge)), limits(edge_limits) {
    bodies = std::make_shared<MemoryAccount>(limits.max_total_body_bytes, nullptr,
                                             MemoryScope::kWaiting);
  }

  HttpLimits limits;
  // Origins whose pages may read answers, "*" for all; empty: no word of CORS is said.
  std::vector<std::string> cors_origins = {};
  // No key is asked for, on the machine's own address: pages of other sites are kept out, and names
  // that are none of ours, but for these.
  bool guards_own_machine = false;
  std::vector<std::string> allowed_hosts = {};
  // Calls what it is given once, then or later, with Prometheus text, nullptr when there is no room
  // for it. Empty function: 404.
  std::function<void(std::function<void(std::shared_ptr<const std::string>)>)> metrics_text =
      nullptr;
  const RouteTable* routes = &PublicRoutes();  // what is served
  AdminActions* admin = nullptr;               // with AdminRoutes only
  KeyRing* operators = nullptr;                // who may see fleet and metrics; nullptr: nobody
  bool fleet_is_open = false;                  // or everyone: on loopback, without keys
  bool metrics_are_open = false;               // or everyone: on loopback, or a port of their own
};

}  // namespace quire
