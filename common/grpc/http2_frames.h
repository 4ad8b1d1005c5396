// Frame headers out of a stream of HTTP/2 bytes (RFC 9113, section 4.1), whatever its splits;
// payloads are skipped.
//
// Owner: one direction of a connection; pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace quire {

struct Http2Frame {
  enum Type : uint8_t {
    kData = 0,
    kHeaders = 1,
    kRstStream = 3,
    kSettings = 4,
    kPing = 6,
    kWindowUpdate = 8,
    kContinuation = 9,
  };
  static constexpr uint8_t kAcknowledged = 0x1;  // of PING and SETTINGS
  static constexpr uint8_t kEndHeaders = 0x4;

  uint32_t length = 0;
  uint8_t type = 0;
  uint8_t flags = 0;
};

class Http2Frames {
 public:
  // Takes bytes off the front until a frame header is complete. False: there is no further one in
  // `bytes`, which is empty then.
  bool Next(std::string_view& bytes, Http2Frame& frame);

 private:
  static constexpr uint32_t kHeaderBytes = 9;
  uint64_t payload_left_ = 0;  // of the current frame
  uint32_t filled_ = 0;        // bytes of the next header
  uint8_t header_[kHeaderBytes] = {};
};

}  // namespace quire
