#include "router/pipeline/worker_statuses.h"

#include "common/hex.h"

namespace quire {

std::vector<WorkerStatus> StatusesOf(const Dispatcher& dispatcher) {
  std::vector<WorkerStatus> all;
  for (const WorkerRecord& worker : dispatcher.fleet().workers()) {
    if (worker.phase == WorkerPhase::kGone) continue;
    WorkerStatus& status = all.emplace_back();
    status.target = worker.target;
    status.worker_id = worker.hello.worker_id;
    status.epoch = HexOf(worker.hello.epoch.value());
    status.model_id = worker.hello.model_id;
    status.served_names = worker.hello.served_names;
    status.phase = std::string(WorkerPhaseName(worker.phase));
    status.index_state =
        std::string(CacheStateName(dispatcher.placement().index().state(worker.index)));
    status.cached_blocks = dispatcher.placement().index().BlocksOf(worker.index);
    status.index_event_seq = dispatcher.placement().index().EventSeqOf(worker.index);
    status.problem = worker.refusal.empty() ? worker.last_error : worker.refusal;
    status.stuck = worker.stuck;
    status.live_attempts = worker.live_attempts;
    status.unadmitted_submits = worker.unadmitted_submits;
    status.routers_attached = worker.routers_attached;
    status.running = worker.load.running_rows;
    status.waiting = worker.load.waiting_requests;
    status.free_blocks = worker.load.free_blocks + worker.load.evictable_blocks;
    status.total_blocks = worker.hello.capacity_blocks;
  }
  return all;
}

}  // namespace quire
