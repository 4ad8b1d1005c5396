// The fleet as the page shows it: workers, what their caches hold, and which stream runs where.
//
// Event loop only; pure but for its caller's clock. No text of a prompt or an answer, no tenant.
#pragma once

#include <string>
#include <vector>

#include "router/core/worker_status.h"
#include "router/records/request_record.h"

namespace quire {

// Of streams, the youngest first; more are only counted.
inline constexpr size_t kMaxFleetStreams = 256;

struct FleetPicture {
  std::vector<WorkerStatus> workers;
  std::vector<RunningRequest> running;
  uint64_t live_requests = 0;
};

// One JSON object.
std::string FleetJson(const FleetPicture& view);

}  // namespace quire
