// What the HTTP edge needs: its limits, and who may see what.
//
// Owner: main; outlives every session. Event loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/edge/model_control.h"
#include "router/edge/services.h"
#include "router/http/exchange.h"

namespace quire {

struct AdminActions;
struct RouteTable;
namespace responses {
class Store;
}
namespace batches {
struct Service;
}
const RouteTable& PublicRoutes();

struct HttpLimits {
  size_t max_header_bytes = 64u << 10;
  size_t max_body_bytes = 32u << 20;
  size_t max_total_body_bytes = 1u << 30;           // of all requests that are not parsed yet
  size_t max_connection_memory_bytes = 256u << 20;  // all that the router holds for one connection
  size_t max_pipelined_bytes = 64u << 10;           // read ahead while an answer is under way
  size_t max_write_buffer_bytes = 16u << 20;        // the client is given up beyond it
  size_t max_prompt_logprobs = 131'072;  // of one answer, checked each time that some is written
  size_t background_parse_bytes = 256u << 10;  // larger bodies are parsed off the event loop
  size_t background_write_bytes = 64u
                                  << 10;  // larger answers of texts are written off the event loop
  Micros header_timeout = 10 * kMicrosPerSecond;  // from a request's first byte to its headers' end
  Micros body_timeout = 60 * kMicrosPerSecond;    // for the whole body
  Micros idle_timeout = 75 * kMicrosPerSecond;    // between requests of a connection
  Micros write_timeout = 30 * kMicrosPerSecond;  // the client takes too little until the next check
  size_t min_read_bytes_per_second = 4096;       // of an answer that waits to be taken
  Micros linger_timeout =
      2 * kMicrosPerSecond;  // reading on after a refusal, so that the refusal arrives
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
  // Origins whose pages may read answers, "*" for all; empty: no header of CORS is sent.
  std::vector<std::string> cors_origins = {};
  // No key is required, on the machine's own address: pages of other sites are kept out, and so are
  // host names that are not the machine's own, except for these.
  bool guards_own_machine = false;
  std::vector<std::string> allowed_hosts = {};
  // Calls its argument once, now or later, with Prometheus text, or nullptr when there is no memory
  // for it. Empty function: 404.
  std::function<void(std::function<void(std::shared_ptr<const std::string>)>)> metrics_text =
      nullptr;
  const RouteTable* routes = &PublicRoutes();  // what is served
  AdminActions* admin = nullptr;               // with AdminRoutes only
  // The life of the request with this x-request-id, or, without an id, the list of the latest ones.
  // Empty: 404.
  std::function<HttpResponse(const std::string& request_id)> request_view = nullptr;
  responses::Store* responses = nullptr;  // nullptr: no responses are kept
  batches::Service* batches = nullptr;    // nullptr: files and batches are not served
  ModelControl* models = nullptr;         // with MachineRoutes only
  KeyRing* operators = nullptr;           // who may see fleet and metrics; nullptr: no client
  bool fleet_is_open = false;             // or everyone: on loopback, without keys
  bool metrics_are_open = false;          // or everyone: on loopback, or a port of their own
};

}  // namespace quire
