#include "router/http2_flags.h"

#include <algorithm>
#include <string>

namespace quire {
namespace {

struct GuardFlag {
  const char* name;
  const char* help;  // of what, each second
  int32_t Http2Rates::*rate;
  RateLimit GuardLimits::*limit;
};

constexpr GuardFlag kGuardFlags[] = {
    {"http2-new-streams", "Calls begun (HEADERS frames)", &Http2Rates::new_streams,
     &GuardLimits::new_streams},
    {"http2-resets", "Calls reset (RST_STREAM frames)", &Http2Rates::resets, &GuardLimits::resets},
    {"http2-pings", "PING frames, but for those that answer what the client was sent,",
     &Http2Rates::pings, &GuardLimits::pings},
    {"http2-settings", "SETTINGS frames", &Http2Rates::settings, &GuardLimits::settings},
    {"http2-window-updates", "WINDOW_UPDATE frames", &Http2Rates::window_updates,
     &GuardLimits::window_updates},
    {"http2-continuations", "CONTINUATION frames", &Http2Rates::continuations,
     &GuardLimits::continuations},
    {"http2-empty-data", "DATA frames without payload", &Http2Rates::empty_data,
     &GuardLimits::empty_data},
    {"http2-other-frames", "Frames of other types (PRIORITY, GOAWAY, unknown ones)",
     &Http2Rates::other_frames, &GuardLimits::other_frames},
    {"http2-header-bytes", "Bytes of headers", &Http2Rates::header_bytes,
     &GuardLimits::header_bytes},
    {"http2-decoded-header-bytes", "Bytes that headers stand for once they are decompressed",
     &Http2Rates::decoded_header_bytes, &GuardLimits::decoded_header_bytes},
};

// A block of --max-header-bytes that refers to nothing decodes to less.
constexpr size_t kDecodedTimes = 16;

// The burst that goes with a rate, as the defaults have it.
double BurstOf(const RateLimit& fallback, double rate) {
  return rate * (fallback.burst / fallback.per_second);
}

}  // namespace

void AddHttp2Flags(config::Schema& schema, RouterConfig& config) {
  for (const GuardFlag& flag : kGuardFlags) {
    const RateLimit fallback = GuardLimits().*flag.limit;
    const double seconds = fallback.burst / fallback.per_second;
    schema.Add({.name = flag.name,
                .help = std::string(flag.help) +
                        " that an HTTP/2 connection may send each second, " +
                        std::to_string(static_cast<int>(seconds)) +
                        " seconds' worth at once; beyond it the connection is closed.",
                .target = &(config.http2.*flag.rate),
                .min = 1,
                .max = 1 << 30});
  }
}

GuardLimits GuardLimitsOf(const RouterConfig& config) {
  GuardLimits limits;
  for (const GuardFlag& flag : kGuardFlags) {
    const double rate = config.http2.*flag.rate;
    limits.*flag.limit = {rate, BurstOf(limits.*flag.limit, rate)};
  }
  limits.max_header_block_bytes = static_cast<uint32_t>(config.max_header.value);
  limits.max_control_frame_bytes = limits.max_header_block_bytes;
  limits.max_decoded_block_bytes =
      std::max(limits.max_decoded_block_bytes, kDecodedTimes * limits.max_header_block_bytes);
  return limits;
}

}  // namespace quire
