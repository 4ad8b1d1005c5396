#include "router/front/http2_guard.h"

#include <algorithm>

namespace quire {
namespace {

// RFC 9113, sections 3.4, 4.1 and 6.
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHeaderBytes = 9;
constexpr uint8_t kData = 0, kHeaders = 1, kRstStream = 3, kSettings = 4, kPing = 6,
                  kWindowUpdate = 8, kContinuation = 9;
constexpr uint8_t kEndHeaders = 0x4;

}  // namespace

Http2Guard::Http2Guard(const GuardLimits& limits, Micros now)
    : limits_(limits),
      new_streams_{limits.new_streams.burst, now},
      resets_{limits.resets.burst, now},
      pings_{limits.pings.burst, now},
      settings_{limits.settings.burst, now},
      window_updates_{limits.window_updates.burst, now},
      continuations_{limits.continuations.burst, now},
      empty_data_{limits.empty_data.burst, now},
      other_frames_{limits.other_frames.burst, now},
      header_bytes_{limits.header_bytes.burst, now} {}

bool Http2Guard::Take(Bucket& bucket, const RateLimit& limit, double amount, Micros now) {
  const double seconds = static_cast<double>(now - bucket.last) / kMicrosPerSecond;
  bucket.last = now;
  bucket.tokens = std::min(limit.burst, bucket.tokens + seconds * limit.per_second);
  if (bucket.tokens < amount) return false;
  bucket.tokens -= amount;
  return true;
}

const char* Http2Guard::Inspect(std::string_view bytes, Micros now) {
  if (verdict_) return verdict_;
  while (preface_seen_ < kPreface.size() && !bytes.empty()) {
    if (bytes[0] != kPreface[preface_seen_]) return verdict_ = "connection preface";
    ++preface_seen_;
    bytes.remove_prefix(1);
  }
  while (!bytes.empty()) {
    if (payload_left_ > 0) {
      const size_t skip = std::min<uint64_t>(payload_left_, bytes.size());
      payload_left_ -= skip;
      bytes.remove_prefix(skip);
      continue;
    }
    header_[header_filled_++] = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    if (header_filled_ < kFrameHeaderBytes) continue;
    header_filled_ = 0;
    Frame frame;
    frame.length = uint32_t{header_[0]} << 16 | uint32_t{header_[1]} << 8 | header_[2];
    frame.type = header_[3];
    frame.flags = header_[4];
    verdict_ = OnFrame(frame, now);
    if (verdict_) return verdict_;
    payload_left_ = frame.length;
  }
  return nullptr;
}

const char* Http2Guard::OnHeaders(const Frame& frame, Micros now) {
  if (frame.type == kHeaders) {
    block_bytes_ = 0;
    // Trailers and headers of streams long gone cost as much as those of new ones.
    if (!Take(new_streams_, limits_.new_streams, 1, now)) return "new streams";
  } else if (!Take(continuations_, limits_.continuations, 1, now)) {
    return "CONTINUATION frames";
  }
  if (!Take(header_bytes_, limits_.header_bytes, frame.length, now)) return "header bytes";
  block_bytes_ += frame.length;
  if (block_bytes_ > limits_.max_header_block_bytes) return "header block size";
  in_block_ = (frame.flags & kEndHeaders) == 0;
  return nullptr;
}

const char* Http2Guard::OnFrame(const Frame& frame, Micros now) {
  if (frame.length > limits_.max_frame_bytes) return "frame size";
  if (in_block_ && frame.type != kContinuation) return "interrupted header block";
  if (!in_block_ && frame.type == kContinuation) return "stray CONTINUATION";
  switch (frame.type) {
    case kData:
      if (frame.length > 0) return nullptr;
      return Take(empty_data_, limits_.empty_data, 1, now) ? nullptr : "empty DATA frames";
    case kHeaders:
    case kContinuation:
      return OnHeaders(frame, now);
    case kRstStream:
      return Take(resets_, limits_.resets, 1, now) ? nullptr : "RST_STREAM frames";
    case kSettings:
      return Take(settings_, limits_.settings, 1, now) ? nullptr : "SETTINGS frames";
    case kPing:
      return Take(pings_, limits_.pings, 1, now) ? nullptr : "PING frames";
    case kWindowUpdate:
      return Take(window_updates_, limits_.window_updates, 1, now) ? nullptr
                                                                   : "WINDOW_UPDATE frames";
    default:
      return Take(other_frames_, limits_.other_frames, 1, now) ? nullptr : "other frames";
  }
}

}  // namespace quire
