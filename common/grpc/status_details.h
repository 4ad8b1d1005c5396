// What a status contains for programs beside its message: google.rpc's error details.
//
// Pure.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace quire {

struct StatusDetails {
  std::string field = {};      // of the request, the faulty one; empty: none
  int64_t retry_after_ms = 0;  // 0: 0: not stated
};

// Attaches a google.rpc.Status, which StatusOfTrailers reads on the other side. With nothing to
// add, the status is unchanged.
void AddDetails(const StatusDetails& details, absl::Status& status);

}  // namespace quire
