// Lines of the log about one request: each names its x-request-id and its trace.
//
// Pure except for the log; the router's event loop. The lines contain no text of a prompt or an
// answer.
#pragma once

#include "common/log/log.h"
#include "router/pipeline/request.h"

namespace quire {

// Records an attempt that is over, and logs one that did not end well: its request continues
// elsewhere, or fails.
void NoteAttempt(const AttemptReport& report, LiveRequest& request, Logger& log);

// Logs how a request ended: as a warning where this router or its workers failed it, otherwise at
// debug level.
void LogEnd(const RequestRecord& record, Logger& log);

// The trace context of a request that lives there; not valid: there is none, or it is in no trace.
trace::RequestTrace TraceIn(const RequestTable& requests, RequestId id);

}  // namespace quire
