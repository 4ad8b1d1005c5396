// What a status says to programs beside its words: google.rpc's error details.
//
// Pure.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace quire {

struct StatusDetails {
  std::string field = {};      // of the request, that is wrong; empty: none
  int64_t retry_after_ms = 0;  // 0: nothing of that
};

// Attaches a google.rpc.Status as StatusOfTrailers does on the other side. Nothing to say: no
// change.
void AddDetails(const StatusDetails& details, absl::Status& status);

}  // namespace quire
