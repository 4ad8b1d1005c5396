// The fleet as the page shows it: workers, what their caches hold, and which stream runs where.
//
// Event loop only; pure except for its caller's clock. Contains no text of a prompt or an answer,
// and no tenant.
#pragma once

#include <string>
#include <vector>

#include "router/core/worker_status.h"
#include "router/edge/model_control.h"
#include "router/records/request_record.h"

namespace quire {

// The most streams that are listed, the youngest first; others are only counted.
inline constexpr size_t kMaxFleetStreams = 256;

struct FleetPicture {
  std::vector<WorkerStatus> workers;
  std::vector<RunningRequest> running;
  uint64_t live_requests = 0;
  std::vector<MachineModel> models = {};  // under `quire serve`
};

// One JSON object.
std::string FleetJson(const FleetPicture& view);

}  // namespace quire
