// What became of one attempt, as this router saw it: its half of the books.
//
// A value; told to the pipeline when the attempt is over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/ids.h"
#include "common/runtime/runtime.h"
#include "router/fleet/fleet.h"
#include "router/routing/policy.h"

namespace quire {

enum class AttemptEnd : uint8_t {
  kFinished,    // its last choice ended, by the worker or by this router
  kCancelled,   // given up here: the client left, or the request failed or ran out of time
  kRefused,     // by the worker
  kFailed,      // the worker said so
  kDeadline,    // the worker said so
  kSlowClient,  // the worker said so
  kDrained,     // handed back by a worker that leaves
  kRouterLost,  // the worker lost sight of this router
  kLost,        // the Attach ended: the worker was killed, frozen or cut off
  kStuck,       // a step ran past its limit
  kBroken,      // its outputs had a gap, or were too many
  kWithdrawn,   // taken back here: workers died under its prompt, of which only one runs then
  kRunning,     // it is under way: told to operators only
};
std::string_view AttemptEndName(AttemptEnd end);

struct AttemptReport {
  Attempt attempt;
  std::string worker_id;
  std::string target;  // HOST:PORT
  Epoch epoch;
  std::string numerics_id;
  std::string outputs_from;  // numerics under which the outputs that it began with were written
  AttemptEnd end = AttemptEnd::kCancelled;
  bool admitted = false;
  uint32_t cached_tokens = 0;    // as the worker told last
  uint64_t accepted_tokens = 0;  // outputs taken from it, over all choices
  // It went on with outputs of other numerics, or of numerics that vary: tokens may differ from an
  // undisturbed run's.
  bool inexact = false;
  RouteFacts route;       // why this worker
  bool carry_on = false;  // taken over from a worker that was lost, stuck, or drained
  Micros sent_at = 0;
  Micros admitted_at = -1;  // these two: −1 where it never came to that
  Micros first_output_at = -1;
  Micros over_at = 0;
};

// Of an attempt that is being sent; `before` is the one before it, if any.
AttemptReport BeginReport(const WorkerRecord& worker, Attempt attempt, const AttemptReport& before,
                          Micros now);

}  // namespace quire
