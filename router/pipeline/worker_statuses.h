// What operators see of the workers, taken from the dispatcher's state.
//
// Router's executor.
#pragma once

#include <vector>

#include "router/core/worker_status.h"
#include "router/dispatch/dispatcher.h"

namespace quire {

// In the order in which workers became known.
std::vector<WorkerStatus> StatusesOf(const Dispatcher& dispatcher);

}  // namespace quire
