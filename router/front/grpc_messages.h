// The lengths of gRPC messages in a client's DATA frames: gRPC 1.51 refuses one that is too large
// by itself and tells its server nothing, so that who wants to count them has to look at the bytes.
//
// Owner: one connection's guard; event loop only; pure.
//
// Invariants:
// 1. Any split of a stream's bytes gives the same count.
// 2. Streams that the client leaves open are bounded: the oldest is forgotten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

#include "router/front/http2_frames.h"

namespace quire {

class GrpcMessages {
 public:
  GrpcMessages(size_t max_message_bytes, size_t max_streams)
      : max_message_bytes_(max_message_bytes), max_streams_(max_streams) {}

  // A frame's header, before its payload.
  void OnFrame(const Http2Frame& frame);
  // Part of the payload of the DATA frame that OnFrame heard of last.
  void OnData(std::string_view payload);
  // Messages that were announced as longer than the limit.
  uint64_t too_large() const { return too_large_; }

 private:
  static constexpr size_t kPrefixBytes = 5;  // a flag and the length, in network order
  struct Stream {
    uint8_t prefix[kPrefixBytes] = {};
    uint32_t filled = 0;        // bytes of the next message's prefix
    uint64_t message_left = 0;  // of the message at hand
  };

  const size_t max_message_bytes_;
  const size_t max_streams_;
  std::map<uint32_t, Stream> streams_;  // by id: those begun later have higher ones
  uint32_t current_ = 0;                // the stream of the DATA frame at hand; 0: nobody's
  bool current_ends_ = false;           // with that frame
  uint64_t too_large_ = 0;
};

}  // namespace quire
