#include "router/pipeline/running_requests.h"

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
    one.record = RecordOf(request, RequestEnd::kFinished, now);
    if (dispatch == nullptr || !dispatch->running) continue;
    AttemptReport attempt = dispatch->report;
    attempt.end = AttemptEnd::kRunning;
    attempt.over_at = now;
    RecordAttempt(one.record, attempt);
  }
  return running;
}

}  // namespace quire
