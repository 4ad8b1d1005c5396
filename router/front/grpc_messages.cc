#include "router/front/grpc_messages.h"

#include <algorithm>

namespace quire {

void GrpcMessages::OnFrame(const Http2Frame& frame) {
  if (current_ends_) streams_.erase(current_);
  current_ = 0;
  current_ends_ = false;
  const bool last = (frame.flags & Http2Frame::kEndStream) != 0;
  switch (frame.type) {
    case Http2Frame::kHeaders:
      if (last) {
        streams_.erase(frame.stream);
      } else if (streams_.try_emplace(frame.stream).second && streams_.size() > max_streams_) {
        streams_.erase(streams_.begin());
      }
      return;
    case Http2Frame::kRstStream:
      streams_.erase(frame.stream);
      return;
    case Http2Frame::kData:
      // No client of gRPC pads; what is left of such a stream is not followed.
      if ((frame.flags & Http2Frame::kPadded) != 0) streams_.erase(frame.stream);
      current_ = frame.stream;
      current_ends_ = last;
      return;
    default:
      return;
  }
}

void GrpcMessages::OnData(std::string_view payload) {
  const auto it = streams_.find(current_);
  if (it == streams_.end()) return;
  Stream& stream = it->second;
  while (!payload.empty()) {
    if (stream.message_left > 0) {
      const size_t count = std::min<uint64_t>(stream.message_left, payload.size());
      stream.message_left -= count;
      payload.remove_prefix(count);
      continue;
    }
    stream.prefix[stream.filled++] = static_cast<uint8_t>(payload[0]);
    payload.remove_prefix(1);
    if (stream.filled < kPrefixBytes) continue;
    stream.filled = 0;
    stream.message_left = uint32_t{stream.prefix[1]} << 24 | uint32_t{stream.prefix[2]} << 16 |
                          uint32_t{stream.prefix[3]} << 8 | stream.prefix[4];
    too_large_ += stream.message_left > max_message_bytes_ ? 1 : 0;
  }
}

}  // namespace quire
