// HOST:PORT, as flags, files and discovery name listeners and peers.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace quire {

inline constexpr size_t kMaxTargetBytes = 300;  // a name of DNS has at most 253

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
};
// HOST:PORT or [HOST]:PORT. INVALID_ARGUMENT says what would work.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text);
// The same for an address to connect to: port 0 is invalid.
absl::Status CheckTarget(std::string_view target);

// "[::1]:9000", "127.0.0.1:9000".
std::string JoinHostPort(std::string_view host, uint32_t port);

// True for 127.0.0.0/8, ::1 and "localhost".
bool IsLoopback(std::string_view host);

}  // namespace quire
