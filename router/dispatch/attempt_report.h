// The result of one attempt as this router saw it: the router's half of the records.
//
// A value; the pipeline gets it when the attempt is over.
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
  kFinished,   // its last choice ended, by the worker or by this router
  kCancelled,  // given up by this router: the client left, or the request failed or ran out of time
  kRefused,    // refused by the worker
  kFailed,     // the worker said so
  kDeadline,   // the worker said so
  kSlowClient,  // the worker said so
  kDrained,     // returned by a worker that leaves
  kRouterLost,  // the worker lost its connection to this router
  kLost,        // the Attach ended: the worker was killed, frozen or cut off
  kStuck,       // a step ran past its limit
  kBroken,      // its outputs had a gap, or were too many
  kWithdrawn,   // taken back by this router: workers died under its prompt, and only one attempt
                // with it may run
  kRunning,     // the attempt is under way: only operators see this value
};
std::string_view AttemptEndName(AttemptEnd end);

struct AttemptReport {
  Attempt attempt;
  std::string worker_id;
  std::string target;  // HOST:PORT
  Epoch epoch;
  std::string numerics_id;
  std::string outputs_from;  // numerics under which the outputs that it began with were computed
  AttemptEnd end = AttemptEnd::kCancelled;
  bool admitted = false;
  uint32_t cached_tokens = 0;    // as the worker last reported it
  uint64_t accepted_tokens = 0;  // outputs taken from it, over all choices
  // It continued outputs of other numerics, or of numerics that vary: tokens may differ from those
  // of an undisturbed run.
  bool inexact = false;
  RouteFacts route;       // why this worker
  bool carry_on = false;  // moved from a worker that was lost, stuck, or drained
  Micros sent_at = 0;
  Micros admitted_at = -1;  // these two: −1 when the attempt did not get that far
  Micros first_output_at = -1;
  Micros over_at = 0;
};

// The report of an attempt that is being sent; `before` is the previous attempt, if any.
AttemptReport BeginReport(const WorkerRecord& worker, Attempt attempt, const AttemptReport& before,
                          Micros now);

}  // namespace quire
