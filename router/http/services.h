// What the HTTP edge is given: the pipeline behind it, its limits, and its ways to the world.
//
// Owner: main; outlives every session. Event loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/memory_account.h"
#include "common/runtime/runtime.h"
#include "router/core/edge_metrics.h"
#include "router/core/request_limits.h"
#include "router/keys/key_ring.h"
#include "router/pipeline/pipeline.h"

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

struct HttpServices {
  Executor& executor;
  Pipeline& pipeline;
  Background& background;
  Rng& rng;
  EdgeMetrics& counters;
  Logger& log;
  HttpLimits limits;
  std::string version;
  RequestLimits request_limits = {};
  // Origins whose pages may read answers, "*" for all; empty: no word of CORS is said.
  std::vector<std::string> cors_origins = {};
  // No key is asked for, on the machine's own address: pages of other sites are kept out, and names
  // that are none of ours, but for these.
  bool guards_own_machine = false;
  std::vector<std::string> allowed_hosts = {};
  bool leaving = false;  // not ready any more, though it still serves
  // Calls what it is given once, then or later, with Prometheus text, nullptr when there is no room
  // for it. Empty function: 404.
  std::function<void(std::function<void(std::shared_ptr<const std::string>)>)> metrics_text =
      nullptr;
  const RouteTable* routes = &PublicRoutes();  // what is served
  AdminActions* admin = nullptr;               // with AdminRoutes only
  KeyRing* keys = nullptr;                     // who may come in; nullptr: everyone
  KeyRing* operators = nullptr;                // who may see fleet and metrics; nullptr: nobody
  bool fleet_is_open = false;                  // or everyone: on loopback, without keys
  bool metrics_are_open = false;               // or everyone: on loopback, or a port of their own
  // What all clients make the router hold; sessions make accounts of their own below it.
  std::shared_ptr<MemoryAccount> memory = std::make_shared<MemoryAccount>(size_t{1} << 30);
  // Beside it, bodies that are not parsed yet.
  std::shared_ptr<MemoryAccount> bodies =
      std::make_shared<MemoryAccount>(limits.max_total_body_bytes, nullptr, MemoryScope::kWaiting);
};

}  // namespace quire
