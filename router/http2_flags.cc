#include "router/http2_flags.h"

#include <string>

namespace quire {
namespace {

struct GuardFlag {
  const char* name;
  const char* help;  // of what, each second
  RateLimit GuardLimits::*limit;
};

constexpr GuardFlag kGuardFlags[] = {
    {"http2-new-streams", "Calls begun (HEADERS frames)", &GuardLimits::new_streams},
    {"http2-resets", "Calls reset (RST_STREAM frames)", &GuardLimits::resets},
    {"http2-pings", "PING frames, but for those that answer what the client was sent,",
     &GuardLimits::pings},
    {"http2-settings", "SETTINGS frames", &GuardLimits::settings},
    {"http2-window-updates", "WINDOW_UPDATE frames", &GuardLimits::window_updates},
    {"http2-continuations", "CONTINUATION frames", &GuardLimits::continuations},
    {"http2-empty-data", "DATA frames without payload", &GuardLimits::empty_data},
    {"http2-other-frames", "Frames of other types (PRIORITY, GOAWAY, unknown ones)",
     &GuardLimits::other_frames},
    {"http2-header-bytes", "Bytes of headers", &GuardLimits::header_bytes},
    {"http2-decoded-header-bytes", "Bytes that headers stand for once they are decompressed",
     &GuardLimits::decoded_header_bytes},
};

}  // namespace

void AddHttp2Flags(config::Schema& schema, RouterConfig& config) {
  for (const GuardFlag& flag : kGuardFlags) {
    RateLimit& limit = config.grpc.guard.*flag.limit;
    const auto seconds = static_cast<int64_t>(limit.burst / limit.per_second);
    schema.Add({.name = flag.name,
                .help = std::string(flag.help) +
                        " that an HTTP/2 connection may send each second, " +
                        std::to_string(seconds) +
                        " seconds' worth at once; beyond it the connection is closed.",
                .target = config::Whole(&limit.per_second),
                .also = {config::Whole(&limit.burst, config::Whole::Unit::kCount, seconds)},
                .min = 1,
                .max = 1 << 30});
  }
}

}  // namespace quire
