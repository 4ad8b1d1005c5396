// Reads the frame headers of an HTTP/2 client connection and reports when it exceeds a named rate,
// before the session sees the bytes: each frame of a flood costs less to send than to answer.
//
// Owner: one connection; event loop only; pure except for the time, which is an argument.
//
// Invariants:
// 1. Bytes are read, never changed or kept; any split of the input gives the same verdict.
// 2. A verdict is final.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/grpc/http2_frames.h"
#include "common/http2_limits.h"
#include "common/runtime/token_bucket.h"

namespace quire {

// Rates that well-behaved clients stay far below, per connection.
struct GuardLimits {
  RateLimit new_streams{1000, 4000};  // all HEADERS frames
  RateLimit resets{100, 400};         // RST_STREAM, and errors that are answered with it
  RateLimit pings{20, 100};           // beyond those that answer sent frames
  RateLimit settings{2, 32};
  RateLimit window_updates{20'000, 40'000};
  RateLimit continuations{100, 200};
  RateLimit empty_data{1000, 4000};          // DATA frames without payload
  RateLimit other_frames{100, 1000};         // PRIORITY, GOAWAY, PUSH_PROMISE and unknown types
  RateLimit header_bytes{2 << 20, 8 << 20};  // HEADERS and CONTINUATION payloads
  // Their decoded size: a byte may be a reference to kilobytes.
  RateLimit decoded_header_bytes{4 << 20, 16 << 20};
  size_t max_decoded_block_bytes = 256u << 10;  // of one stream's headers
  uint32_t max_header_block_bytes = 64u << 10;  // of one stream: HEADERS and its CONTINUATIONs
  // The largest frame except DATA, which the session bounds by the frame size that it announces.
  uint32_t max_control_frame_bytes = 64u << 10;
};

// How many of a client's pings may still come when nothing is sent to it any more.
inline constexpr uint32_t kMaxEarnedPings = 1024;

class Http2Guard {
 public:
  Http2Guard(const GuardLimits& limits, Micros now);

  // Bytes from the client, including the connection preface. Returns nullptr while they are fine,
  // otherwise the name of the limit that was exceeded, one of kHttp2Limits.
  const char* Inspect(std::string_view bytes, Micros now);
  // The same up to the next frame: removes the bytes that it has read from the front.
  const char* InspectNext(std::string_view& bytes, Micros now);
  // This many bytes of header lists were decoded from the admitted bytes.
  const char* Decoded(size_t bytes, Micros now);
  // A frame on its way to the client. DATA and HEADERS may each be answered by a PING (clients
  // probe the bandwidth in this way, grpc-go whenever data comes and none of its PINGs is under
  // way), a PING by its acknowledgement. Those pings do not count for the rate, at most
  // kMaxEarnedPings of them later.
  void Sent(const Http2Frame& frame);
  // A stream was reset because of what the client did: costs as much as a reset by the client.
  void SentReset(Micros now);
  const char* verdict() const { return verdict_; }

 private:
  const char* OnFrame(const Http2Frame& frame, Micros now);
  const char* OnHeaders(const Http2Frame& frame, Micros now);

  GuardLimits limits_;
  const char* verdict_ = nullptr;
  uint32_t preface_seen_ = 0;  // bytes of the connection preface
  Http2Frames frames_;
  uint32_t earned_pings_ = 0;
  uint32_t block_bytes_ = 0;  // of the header block that is being received
  bool in_block_ = false;     // until a frame with END_HEADERS
  size_t decoded_block_bytes_ = 0;
  TokenBucket new_streams_, resets_, pings_, settings_, window_updates_, continuations_,
      empty_data_, other_frames_, header_bytes_, decoded_header_bytes_;
};

}  // namespace quire
