// HOST:PORT, as workers are named by flags, files and discovery.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace quire {

inline constexpr size_t kMaxTargetBytes = 300;  // a name of DNS has at most 253

// INVALID_ARGUMENT says what would do.
absl::Status CheckTarget(std::string_view target);

// Of a target that passes CheckTarget: the host without brackets, and the port.
struct TargetParts {
  std::string host;
  uint16_t port = 0;
};
TargetParts SplitTarget(std::string_view target);

// "[::1]:9000", "127.0.0.1:9000".
std::string MakeTarget(std::string_view host, uint32_t port);

}  // namespace quire
