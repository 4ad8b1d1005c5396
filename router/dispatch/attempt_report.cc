#include "router/dispatch/attempt_report.h"

#include "common/numerics.h"

namespace quire {

std::string_view AttemptEndName(AttemptEnd end) {
  switch (end) {
    case AttemptEnd::kFinished:
      return "finished";
    case AttemptEnd::kCancelled:
      return "cancelled";
    case AttemptEnd::kRefused:
      return "refused";
    case AttemptEnd::kFailed:
      return "failed";
    case AttemptEnd::kDeadline:
      return "deadline";
    case AttemptEnd::kSlowClient:
      return "slow_client";
    case AttemptEnd::kDrained:
      return "drained";
    case AttemptEnd::kRouterLost:
      return "router_lost";
    case AttemptEnd::kLost:
      return "lost";
    case AttemptEnd::kStuck:
      return "stuck";
    case AttemptEnd::kBroken:
      return "broken";
    case AttemptEnd::kWithdrawn:
      return "withdrawn";
    case AttemptEnd::kRunning:
      return "running";
  }
  return "unknown";
}

AttemptReport BeginReport(const WorkerRecord& worker, Attempt attempt, const AttemptReport& before,
                          Micros now) {
  AttemptReport report;
  report.attempt = attempt;
  report.worker_id = worker.hello.worker_id;
  report.target = worker.target;
  report.epoch = worker.hello.epoch;
  report.numerics_id = worker.hello.numerics_id;
  report.outputs_from = before.accepted_tokens > 0 ? before.numerics_id : before.outputs_from;
  report.inexact =
      !report.outputs_from.empty() && !SameBits(report.outputs_from, report.numerics_id);
  report.sent_at = now;
  return report;
}

}  // namespace quire
