#include "common/grpc/http2_frames.h"

#include <algorithm>

namespace quire {

bool Http2Frames::Next(std::string_view& bytes, Http2Frame& frame) {
  while (!bytes.empty()) {
    if (payload_left_ > 0) {
      const size_t count = std::min<uint64_t>(payload_left_, bytes.size());
      payload_left_ -= count;
      bytes.remove_prefix(count);
      continue;
    }
    header_[filled_++] = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    if (filled_ < kHeaderBytes) continue;
    filled_ = 0;
    frame.length = uint32_t{header_[0]} << 16 | uint32_t{header_[1]} << 8 | header_[2];
    frame.type = header_[3];
    frame.flags = header_[4];
    payload_left_ = frame.length;
    return true;
  }
  return false;
}

}  // namespace quire
