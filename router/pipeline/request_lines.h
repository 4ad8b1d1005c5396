// Lines of the log about one request: each names its x-request-id and its trace.
//
// Pure but for the log; the router's event loop. No text of a prompt or an answer is in them.
#pragma once

#include "common/log/log.h"
#include "router/pipeline/request.h"

namespace quire {

// Books an attempt that is over, and tells of one that did not end well: its request goes on
// elsewhere, or fails.
void NoteAttempt(const AttemptReport& report, LiveRequest& request, Logger& log);

// Tells how a request ended: a warning where this router or its workers failed it, else for who
// debugs.
void LogEnd(const RequestRecord& record, Logger& log);

// Of a request that lives there; not valid: none does, or it is in no trace.
trace::RequestTrace TraceIn(const RequestTable& requests, RequestId id);

}  // namespace quire
