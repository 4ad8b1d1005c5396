#include "router/pipeline/request_lines.h"

namespace quire {
namespace {

bool EndedWell(AttemptEnd end) {
  return end == AttemptEnd::kFinished || end == AttemptEnd::kCancelled;
}

std::string TraceText(const RequestRecord& record) {
  return record.trace.id.valid() ? trace::TraceIdHex(record.trace.id) : "";
}

// The server is at fault for these failures, not the client.
bool IsOurFault(const RequestRecord& record) {
  return record.end == RequestEnd::kFailed && record.error == ApiCode::kInternal;
}

}  // namespace

void NoteAttempt(const AttemptReport& report, LiveRequest& request, Logger& log) {
  RecordAttempt(request.record, report);
  request.moved_by.assign(request.choices, report.end);
  const bool well = EndedWell(report.end);
  const LogLevel level = well ? LogLevel::kDebug : LogLevel::kInfo;
  if (!log.Enabled(level)) return;
  log.Log(level, well ? "an attempt has ended" : "an attempt did not end well",
          {{"request_id", request.ask.request_id},
           {"trace_id", TraceText(request.record)},
           {"attempt", report.attempt.value()},
           {"worker", report.worker_id},
           {"chosen_for", report.route.reason},
           {"foretold_tokens", report.route.predicted_tokens},
           {"cached_tokens", report.cached_tokens},
           {"end", AttemptEndName(report.end)},
           {"accepted_tokens", report.accepted_tokens}});
}

void LogEnd(const RequestRecord& record, Logger& log) {
  const bool failed = record.end == RequestEnd::kFailed || record.end == RequestEnd::kRejected;
  const LogLevel level = IsOurFault(record) ? LogLevel::kWarning : LogLevel::kDebug;
  if (!log.Enabled(level)) return;
  log.Log(level, "a request has ended",
          {{"request_id", record.request_id},
           {"trace_id", TraceText(record)},
           {"model", record.model},
           {"tenant", record.tenant},
           {"end", RequestEndName(record.end)},
           {"error", failed ? ApiCodeName(record.error) : std::string_view()},
           {"attempts", record.attempts_total},
           {"prompt_tokens", record.prompt_tokens},
           {"delivered_tokens", record.delivered_tokens},
           {"first_token_us", record.first_token_us},
           {"total_us", record.total_us}});
}

trace::RequestTrace TraceIn(const RequestTable& requests, RequestId id) {
  const SharedRequest found = FindRequest(requests, id);
  return found == nullptr ? trace::RequestTrace() : found->record.trace;
}

}  // namespace quire
