// What each way in which a worker gives up an attempt means for its request.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "common/wire/values.h"
#include "router/core/api.h"
#include "router/dispatch/attempt_report.h"

namespace quire {

// True when another worker, or this one later, may take the request.
bool WorthAnotherWorker(RefusalCode code);
// What the client sees when no other worker is left.
ApiError ErrorOfRefusal(const Refused& refused);

// For ends that are neither STOP nor LENGTH.
bool WorthAnotherAttempt(const Ended& ended);
ApiError ErrorOfEnd(const Ended& ended);
AttemptEnd AttemptEndOf(EndReason reason);

// No worker can take a request, or continue one.
ApiError NoWorkerError(const std::string& model, bool stream_had_begun);

// This many workers died under a request; and its prompt came again too soon.
ApiError SuspectError(uint32_t deaths);
ApiError SuspectPromptError();

}  // namespace quire
