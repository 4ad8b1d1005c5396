// What gRPC connections are given by the program that serves them: its event loop, its limits, and
// what it counts.
//
// Owner: the server; outlives every connection and call. Event loop only, but for what calls read
// of it on background threads: limits, bodies.
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

// Of a turn's work: what a frame and a message cost beside their bytes.
inline constexpr size_t kFrameWork = 128;
inline constexpr size_t kMessageWork = 512;

struct GrpcLimits {
  size_t max_receive_bytes = 16u << 20;             // of one message
  size_t max_send_bytes = 16u << 20;                // of one message
  size_t background_parse_bytes = 64u << 10;        // larger messages are parsed off the event loop
  size_t max_connection_memory_bytes = 256u << 20;  // of all that one connection makes us hold
  uint32_t max_metadata_bytes = 16u << 10;          // of one call
  uint32_t max_concurrent_streams = 256;            // of one connection
  uint32_t stream_window_bytes = 512u << 10;        // of what a client sends
  uint32_t connection_window_bytes = 2u << 20;
  // Of one connection in one turn of the loop: its bytes, what headers are decoded to, and for each
  // frame and message what kFrameWork and kMessageWork say. What is left waits for a later turn.
  size_t turn_work_bytes = 256u << 10;
  Micros message_timeout = 60 * kMicrosPerSecond;  // for the whole of a message that is awaited
  Micros idle_timeout = 75 * kMicrosPerSecond;     // of a connection without a call
  Micros keep_alive = 15 * kMicrosPerSecond;       // of silence, then a client is pinged
  Micros ping_timeout = 20 * kMicrosPerSecond;     // for a word after that
  // A connection is left at this age, give or take a tenth, and after the grace its calls are
  // ended; 0: never. Clients spread over servers that are new so, also behind a balancer of
  // connections.
  Micros max_connection_age = 0;
  Micros max_connection_age_grace = 0;
  Micros notice_timeout = 2 * kMicrosPerSecond;  // for calls under way when a client is left
  Micros write_timeout = 30 * kMicrosPerSecond;  // a client takes too little of what has ended
  size_t write_step_bytes = 1;                   // that it must take meanwhile, or all there is
  Micros linger_timeout = 2 * kMicrosPerSecond;  // reading on after the end, so that it arrives
  size_t max_linger_bytes = 4u << 20;
  GuardLimits guard;
};

// All outlive the connections.
struct GrpcCounters {
  Counter& connections;
  Counter& idle_closed;         // connections, open for too long without a call
  Counter& streams_over_limit;  // calls: more than the client was told that it may open
  Counter& metadata_too_large;
  Counter& messages_too_large;
  Counter& message_timeouts;      // calls whose client's message came too slowly
  Counter& bodies_refused;        // messages that wait to be read were too large, all together
  Counter& method_calls_refused;  // too many of one method were open on their connection
  Counter& aged;                  // connections, left because of their age
  Counter& write_timeouts;        // the client took nothing of an answer for too long
  std::map<std::string_view, Counter*> guard_closed;  // connections, by the name of the limit
};

// Where limits are set, for those who meet them: what follows an error's words.
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
  // are told that none may be compressed.
  Background* background = nullptr;
  // Who may come in: asked for each call before a message is read. Empty: everyone.
  std::function<std::optional<GrpcEnd>(const GrpcCallHead&, ClientSeat&)> refuse = {};
  // Whose turns in the background the messages of a call take. Empty: all are of one.
  std::function<std::string(const GrpcCallHead&)> owner = {};
  GrpcLimitNames limit_names = {};
  Rng* rng = nullptr;  // of ages; nullptr: all are the same
  // Where what a call's tenant holds counts, beside its connection. Empty: nowhere.
  std::function<std::shared_ptr<MemoryAccount>(const GrpcCallHead&)> tenant_memory = {};
  // What all clients make the program hold; connections make accounts of their own below it.
  std::shared_ptr<MemoryAccount> memory = std::make_shared<MemoryAccount>(size_t{1} << 30);
  // Beside it, messages that are not parsed yet.
  std::shared_ptr<MemoryAccount> bodies =
      std::make_shared<MemoryAccount>(size_t{1} << 30, nullptr, MemoryScope::kWaiting);

  // What a turn of the loop leaves to be done at its end, in one piece with what other calls leave:
  // first `after_turn`, where calls write what the turn had for them, then `flushes`, where
  // connections give to the system what was written.
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
