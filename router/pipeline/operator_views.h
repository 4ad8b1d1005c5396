// What operators see: requests that have not ended, and workers.
//
// Called by the pipeline on its executor; pure.
#pragma once

#include <string_view>
#include <vector>

#include "router/core/worker_status.h"
#include "router/dispatch/dispatcher.h"
#include "router/pipeline/request.h"

namespace quire {

// The state is one of: preparing (its model, template and tokens), queued, waiting (for a worker),
// carrying_on (waiting for the next worker), sent, prefill, generating. Lists the requests with
// this x-request-id; if it is empty, the latest kMaxRunningListed of all. The youngest comes first.
std::vector<RunningRequest> RunningOf(const RequestTable& requests, const Dispatcher& dispatcher,
                                      std::string_view request_id, Micros now);

// In the order in which workers became known.
std::vector<WorkerStatus> StatusesOf(const Dispatcher& dispatcher);

}  // namespace quire
