#include "common/grpc/http2_guard.h"

namespace quire {
namespace {

// RFC 9113, section 3.4.
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

}  // namespace

Http2Guard::Http2Guard(const GuardLimits& limits, Micros now)
    : limits_(limits),
      new_streams_(limits.new_streams, now),
      resets_(limits.resets, now),
      pings_(limits.pings, now),
      settings_(limits.settings, now),
      window_updates_(limits.window_updates, now),
      continuations_(limits.continuations, now),
      empty_data_(limits.empty_data, now),
      other_frames_(limits.other_frames, now),
      header_bytes_(limits.header_bytes, now),
      decoded_header_bytes_(limits.decoded_header_bytes, now) {}

const char* Http2Guard::Inspect(std::string_view bytes, Micros now) {
  while (!bytes.empty() && InspectNext(bytes, now) == nullptr) {
  }
  return verdict_;
}

const char* Http2Guard::InspectNext(std::string_view& bytes, Micros now) {
  if (verdict_) return verdict_;
  while (preface_seen_ < kPreface.size() && !bytes.empty()) {
    if (bytes[0] != kPreface[preface_seen_]) return verdict_ = "preface";
    ++preface_seen_;
    bytes.remove_prefix(1);
  }
  Http2Frame frame;
  if (frames_.Next(bytes, frame)) verdict_ = OnFrame(frame, now);
  return verdict_;
}

const char* Http2Guard::Decoded(size_t bytes, Micros now) {
  decoded_block_bytes_ += bytes;
  if (verdict_) return verdict_;
  if (decoded_block_bytes_ > limits_.max_decoded_block_bytes) {
    verdict_ = "decoded_header_block";
  } else if (!decoded_header_bytes_.TryTake(static_cast<double>(bytes), now)) {
    verdict_ = "decoded_header_bytes";
  }
  return verdict_;
}

void Http2Guard::SentReset(Micros now) {
  if (!verdict_ && !resets_.TryTake(1, now)) verdict_ = "resets";
}

void Http2Guard::Sent(const Http2Frame& frame) {
  const bool pinged =
      frame.type == Http2Frame::kPing && (frame.flags & Http2Frame::kAcknowledged) == 0;
  const bool answered = frame.type == Http2Frame::kData || frame.type == Http2Frame::kHeaders;
  if ((pinged || answered) && earned_pings_ < kMaxEarnedPings) ++earned_pings_;
}

const char* Http2Guard::OnHeaders(const Http2Frame& frame, Micros now) {
  if (frame.type == Http2Frame::kHeaders) {
    block_bytes_ = decoded_block_bytes_ = 0;
    // Trailers and headers of streams long gone cost as much as those of new ones.
    if (!new_streams_.TryTake(1, now)) return "new_streams";
  } else if (!continuations_.TryTake(1, now)) {
    return "continuations";
  }
  if (!header_bytes_.TryTake(frame.length, now)) return "header_bytes";
  block_bytes_ += frame.length;
  if (block_bytes_ > limits_.max_header_block_bytes) return "header_block";
  in_block_ = (frame.flags & Http2Frame::kEndHeaders) == 0;
  return nullptr;
}

const char* Http2Guard::OnFrame(const Http2Frame& frame, Micros now) {
  if (frame.type != Http2Frame::kData && frame.length > limits_.max_control_frame_bytes)
    return "frame_size";
  if (in_block_ && frame.type != Http2Frame::kContinuation) return "interrupted_headers";
  if (!in_block_ && frame.type == Http2Frame::kContinuation) return "stray_continuation";
  switch (frame.type) {
    case Http2Frame::kData:
      if (frame.length > 0) return nullptr;
      return empty_data_.TryTake(1, now) ? nullptr : "empty_data";
    case Http2Frame::kHeaders:
    case Http2Frame::kContinuation:
      return OnHeaders(frame, now);
    case Http2Frame::kRstStream:
      return resets_.TryTake(1, now) ? nullptr : "resets";
    case Http2Frame::kSettings:
      return settings_.TryTake(1, now) ? nullptr : "settings";
    case Http2Frame::kPing:
      if (earned_pings_ > 0) {
        --earned_pings_;
        return nullptr;
      }
      return pings_.TryTake(1, now) ? nullptr : "pings";
    case Http2Frame::kWindowUpdate:
      return window_updates_.TryTake(1, now) ? nullptr : "window_updates";
    default:
      return other_frames_.TryTake(1, now) ? nullptr : "other_frames";
  }
}

}  // namespace quire
