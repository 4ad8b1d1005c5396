#include "router/records/request_record.h"

#include <algorithm>

#include "common/hex.h"
#include "common/json/json.h"
#include "common/log/line_file.h"
#include "common/utf8.h"

namespace quire {
namespace {

constexpr size_t kMaxNameBytes = 256;  // of what workers and clients chose

// A cut may be within a character.
std::string Cut(const std::string& name) { return ValidUtf8(name.substr(0, kMaxNameBytes)); }

// How a line is written: for the log, or with `state` for an operator.
struct Form {
  size_t most_attempts = 0;
  std::string_view state = {};
};

void AddTimes(const AttemptReport& report, Micros arrived, json::Object& line) {
  line["target"] = Cut(report.target);
  line["sent_us"] = report.sent_at - arrived;
  if (report.admitted_at >= 0) line["admitted_us"] = report.admitted_at - arrived;
  if (report.first_output_at >= 0) line["first_output_us"] = report.first_output_at - arrived;
  if (report.end != AttemptEnd::kRunning) line["over_us"] = report.over_at - arrived;
}

json::Object AttemptJson(const AttemptReport& report) {
  json::Object line;
  line["attempt"] = report.attempt.value();
  line["worker"] = Cut(report.worker_id);
  line["epoch"] = HexOf(report.epoch.value());
  line["end"] = std::string(AttemptEndName(report.end));
  line["admitted"] = report.admitted;
  line["cached_tokens"] = report.cached_tokens;
  line["accepted_tokens"] = report.accepted_tokens;
  if (report.carry_on) line["carry_on"] = true;
  if (report.inexact) line["inexact"] = true;
  line["us"] = report.over_at - report.sent_at;
  return line;
}

std::string Line(const RequestRecord& record, int64_t unix_seconds, const Form& form) {
  json::Object line;
  line["time"] = unix_seconds;
  line["router"] = HexOf(record.router.value());
  line["request"] = record.request.value();
  line["request_id"] = Cut(record.request_id);
  if (record.trace.id.valid()) line["trace_id"] = trace::TraceIdHex(record.trace.id);
  line["tenant"] = Cut(record.tenant);
  line["model"] = Cut(record.model);
  line["model_id"] = Cut(record.model_id);
  if (!record.adapter.empty()) line["adapter"] = Cut(record.adapter);
  line["priority"] = record.priority;
  line["streaming"] = record.streaming;
  const bool ended = form.state.empty() || form.state == "ended";
  if (!form.state.empty()) line["state"] = std::string(form.state);
  if (ended) line["reason"] = std::string(RequestEndName(record.end));
  const bool failed =
      ended && (record.end == RequestEnd::kFailed || record.end == RequestEnd::kRejected);
  if (failed) line["error"] = std::string(ApiCodeName(record.error));
  json::Array reasons;
  for (const std::string& reason : record.finish_reasons) reasons.emplace_back(reason);
  line["finish_reasons"] = std::move(reasons);
  line["prompt_tokens"] = record.prompt_tokens;
  line["cached_tokens"] = record.cached_tokens;
  line["resumed_tokens"] = record.resumed_tokens;
  line["accepted_tokens"] = record.accepted_tokens;
  line["delivered_tokens"] = record.delivered_tokens;
  line["discarded_tokens"] = record.discarded_tokens;
  if (record.inexact) line["inexact"] = true;
  line["attempts_total"] = record.attempts_total;
  json::Array attempts;
  for (const AttemptReport& report : record.attempts) {
    if (attempts.size() == form.most_attempts) break;
    json::Object attempt = AttemptJson(report);
    if (!form.state.empty()) AddTimes(report, record.arrived_at, attempt);
    attempts.emplace_back(std::move(attempt));
  }
  line["attempts"] = std::move(attempts);
  line["queued_us"] = record.queued_us;
  line["first_token_us"] = record.first_token_us;
  line["total_us"] = record.total_us;
  return json::Serialize(line);
}

}  // namespace

std::string_view ApiCodeName(ApiCode code) {
  switch (code) {
    case ApiCode::kInvalidArgument:
      return "invalid_argument";
    case ApiCode::kUnauthenticated:
      return "unauthenticated";
    case ApiCode::kPermissionDenied:
      return "permission_denied";
    case ApiCode::kNotFound:
      return "not_found";
    case ApiCode::kConflict:
      return "conflict";
    case ApiCode::kTooLarge:
      return "too_large";
    case ApiCode::kRateLimited:
      return "rate_limited";
    case ApiCode::kCancelled:
      return "cancelled";
    case ApiCode::kInternal:
      return "internal";
    case ApiCode::kUnimplemented:
      return "unimplemented";
    case ApiCode::kUnavailable:
      return "unavailable";
    case ApiCode::kDeadlineExceeded:
      return "deadline_exceeded";
  }
  return "unknown";
}

std::string_view RequestEndName(RequestEnd end) {
  switch (end) {
    case RequestEnd::kFinished:
      return "finished";
    case RequestEnd::kCancelled:
      return "cancelled";
    case RequestEnd::kFailed:
      return "failed";
    case RequestEnd::kRejected:
      return "rejected";
  }
  return "unknown";
}

void RecordAttempt(RequestRecord& record, const AttemptReport& report) {
  ++record.attempts_total;
  record.inexact = record.inexact || report.inexact;
  if (record.attempts.size() == kMaxRecordedAttempts) {
    record.attempts.erase(record.attempts.begin() + kMaxRecordedAttempts / 2);
  }
  record.attempts.push_back(report);
}

std::string RequestRecordJson(const RequestRecord& record, int64_t unix_seconds) {
  Form form{record.attempts.size()};
  std::string line = Line(record, unix_seconds, form);
  while (line.size() > kMaxFileLineBytes && form.most_attempts > 0) {
    form.most_attempts /= 2;
    line = Line(record, unix_seconds, form);
  }
  return line;
}

std::string RequestTimelineJson(const RequestRecord& record, std::string_view state,
                                int64_t unix_seconds) {
  return Line(record, unix_seconds, {record.attempts.size(), state});
}

}  // namespace quire
