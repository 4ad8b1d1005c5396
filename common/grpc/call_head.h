// What a client states about a call before its messages, and what ends one.
//
// Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/runtime/runtime.h"
#include "common/status.h"

namespace quire {

inline constexpr std::string_view kHealthPath = "/grpc.health.v1.Health/";

using GrpcMetadata = std::vector<std::pair<std::string, std::string>>;

struct GrpcCallHead {
  std::string path;
  // Without pseudo-headers, in the client's order; values of names that end in "-bin" are decoded.
  GrpcMetadata metadata;
  Micros deadline = 0;         // on the executor's clock; 0: none
  std::string malformed = {};  // a name in "-bin" whose value is no base64; empty: none

  std::string_view Find(std::string_view name) const;  // the first one; empty: none
  size_t Count(std::string_view name) const;
  std::string All(std::string_view name) const;  // several of one name are one list
};

struct GrpcEnd {
  GrpcEnd(absl::Status with, int64_t retry_ms = 0)  // NOLINT: implicit by design
      : status(std::move(with)), retry_after_ms(retry_ms) {}

  absl::Status status;
  int64_t retry_after_ms;  // sent to the client; 0: not stated
};

}  // namespace quire
