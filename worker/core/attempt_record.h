// What one attempt of a request cost this worker: made once, when the last of its choices ends.
//
// Plain data in EngineOutput; who writes it down is not the engine's concern. The sums of all
// records of an epoch are the engine's totals at rest.
#pragma once

#include <cstdint>
#include <string>

#include "common/ids.h"
#include "common/wire.h"

namespace quire {

struct AttemptRecord {
  RouterInstance router;
  AttemptKey key;
  std::string request_id;  // the client's, only carried along
  std::string tenant;
  uint32_t choices = 1;                        // that this attempt ran: ended ones left out
  EndReason reason = EndReason::kUnspecified;  // of the choice that ended last
  AttemptUsage usage;
  uint32_t preemptions = 0;

  // Phases in microseconds. What an attempt never reached is 0; the three add up to its stay.
  int64_t queue_us = 0;    // accepted → first named by a step
  int64_t prefill_us = 0;  // → its first token
  int64_t decode_us = 0;   // → its end; pauses and preemptions are inside
};

}  // namespace quire
