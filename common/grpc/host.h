// What gRPC connections use of the program that serves them: its event loop, its limits, and its
// counters.
//
// Owner: the server; outlives every connection and call. Event loop only, except for the members
// that calls read on background threads: limits, bodies.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/client_seat.h"
#include "common/grpc/call_head.h"
#include "common/grpc/http2_guard.h"
#include "common/log/log.h"
#include "common/memory_account.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"

namespace quire {

// The cost of a frame and of a message in a turn's work, beside their bytes.
inline constexpr size_t kFrameWork = 128;
inline constexpr size_t kMessageWork = 512;

struct GrpcLimits {
  size_t max_receive_bytes = 16u << 20;             // of one message
  size_t max_send_bytes = 16u << 20;                // of one message
  size_t background_parse_bytes = 64u << 10;        // larger messages are parsed off the event loop
  size_t max_connection_memory_bytes = 256u << 20;  // all that is held for one connection
  uint32_t max_metadata_bytes = 16u << 10;          // of one call
  uint32_t max_concurrent_streams = 256;            // of one connection
  uint32_t stream_window_bytes = 512u << 10;        // of what a client sends
  uint32_t connection_window_bytes = 2u << 20;
  // Work for one connection in one turn of the loop: its bytes, the size of decoded headers, and
  // kFrameWork and kMessageWork for each frame and message. The rest waits for a later turn.
  size_t turn_work_bytes = 256u << 10;
  Micros message_timeout = 60 * kMicrosPerSecond;  // for all of an awaited message
  Micros idle_timeout = 75 * kMicrosPerSecond;     // of a connection without a call
  Micros keep_alive = 15 * kMicrosPerSecond;       // of silence, after which a client is pinged
  Micros ping_timeout = 20 * kMicrosPerSecond;     // for an answer to the ping
  // A connection is closed at this age, give or take a tenth, and after the grace its calls are
  // ended; 0: never. Clients thus spread over new servers, also behind a balancer of connections.
  Micros max_connection_age = 0;
  Micros max_connection_age_grace = 0;
  Micros notice_timeout = 2 * kMicrosPerSecond;  // for running calls when a connection is closed
  Micros write_timeout = 30 * kMicrosPerSecond;  // the client reads too little of a finished answer
  size_t write_step_bytes = 1;                   // that it must read meanwhile, or everything
  Micros linger_timeout =
      2 * kMicrosPerSecond;  // reading on after the end, so that the answer arrives
  size_t max_linger_bytes = 4u << 20;
  GuardLimits guard;
};

// All outlive the connections.
struct GrpcCounters {
  Counter& connections;
  Counter& idle_closed;         // connections, open for too long without a call
  Counter& streams_over_limit;  // calls: more than the client may open
  Counter& metadata_too_large;
  Counter& messages_too_large;
  Counter& message_timeouts;      // calls with messages that came too slowly
  Counter& bodies_refused;        // messages that wait to be parsed were too large together
  Counter& method_calls_refused;  // too many of one method were open on their connection
  Counter& aged;                  // connections, left because of their age
  Counter& write_timeouts;        // the client read nothing of an answer for too long
  Counter& lingers_cut;           // more came after a connection's end than is read
  std::map<std::string_view, Counter*> guard_closed;  // connections, by the name of the limit
};

// Where limits are set, for clients that reach them: text that is appended to an error.
struct GrpcLimitNames {
  std::string metadata;  // " (--max-header-bytes)"
  std::string message_time;
  std::string connection_memory;
  std::string tenant_memory;
  std::string client_memory;
};

struct GrpcHost {
  Executor& executor;
  Logger& log;
  GrpcCounters counters;
  GrpcLimits limits;
  // For large messages and compressed ones. nullptr: all are parsed on the event loop, and clients
  // learn that none may be compressed.
  Background* background = nullptr;
  // Whether a call is admitted: called for each call before a message is read. Empty: every call
  // is.
  std::function<std::optional<GrpcEnd>(const GrpcCallHead&, ClientSeat&)> refuse = {};
  // The tenant whose turns in the background the messages of a call use. Empty: all calls have the
  // same.
  std::function<std::string(const GrpcCallHead&)> owner = {};
  GrpcLimitNames limit_names = {};
  Rng* rng = nullptr;  // of ages; nullptr: all are the same
  // The account of a call's tenant, which counts beside the connection's. Empty: there is none.
  std::function<std::shared_ptr<MemoryAccount>(const GrpcCallHead&)> tenant_memory = {};
  // What the program holds for all clients; connections make their own accounts below it.
  std::shared_ptr<MemoryAccount> memory = std::make_shared<MemoryAccount>(size_t{1} << 30);
  // Messages that are not parsed yet, counted apart.
  std::shared_ptr<MemoryAccount> bodies =
      std::make_shared<MemoryAccount>(size_t{1} << 30, nullptr, MemoryScope::kWaiting);

  // Work of a turn of the loop that is left for its end, together with that of other calls: first
  // `after_turn`, where calls write their output of the turn, then `flushes`, where connections
  // pass the written data to the system.
  struct TurnEnd {
    std::vector<std::function<void()>> after_turn = {};
    std::vector<std::function<void()>> flushes = {};
    bool posted = false;
  };
  // Shared with its own posted turn, only while that runs.
  std::shared_ptr<TurnEnd> turn_end = std::make_shared<TurnEnd>();

  void AfterTurn(std::function<void()> work);
  void Flush(std::function<void()> work);
};

}  // namespace quire
