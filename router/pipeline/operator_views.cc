#include "router/pipeline/operator_views.h"

#include "common/hex.h"

namespace quire {
namespace {

std::string_view StateOf(const LiveRequest& request, const LiveDispatch* dispatch) {
  if (dispatch == nullptr) return request.queued_at == 0 ? "preparing" : "queued";
  if (!dispatch->running) return dispatch->carry_on ? "carrying_on" : "waiting";
  if (dispatch->report.first_output_at >= 0) return "generating";
  return dispatch->report.admitted ? "prefill" : "sent";
}

}  // namespace

std::vector<RunningRequest> RunningOf(const RequestTable& requests, const Dispatcher& dispatcher,
                                      std::string_view request_id, Micros now) {
  std::vector<RunningRequest> running;
  for (auto it = requests.rbegin(); it != requests.rend(); ++it) {
    const LiveRequest& request = *it->second;
    if (!request_id.empty() && request.ask.request_id != request_id) continue;
    if (running.size() == kMaxRunningListed) break;
    const LiveDispatch* dispatch = dispatcher.Peek(RequestNumber(request.id));
    RunningRequest& one = running.emplace_back();
    one.state = StateOf(request, dispatch);
    one.record = RecordOf(request, request.record, RequestEnd::kFinished, now);
    if (dispatch == nullptr || !dispatch->running) continue;
    AttemptReport attempt = dispatch->report;
    attempt.end = AttemptEnd::kRunning;
    attempt.over_at = now;
    RecordAttempt(one.record, attempt);
  }
  return running;
}

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
    for (const ServedAdapter& adapter : worker.hello.adapters) {
      if (!adapter.name.empty()) status.adapters.push_back(adapter.name);
    }
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
