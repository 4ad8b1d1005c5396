// What one accepted request was and what it cost: the router's half of the records, one for each
// request.
//
// A value, made by the pipeline when the request has ended, in whatever way. It contains no prompt
// text and no output. delivered + discarded = accepted; the outputs accepted of an attempt are at
// most those that its worker generated; sums of records equal the router's counters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/runtime/runtime.h"
#include "common/trace/context.h"
#include "router/core/api.h"
#include "router/dispatch/attempt_report.h"

namespace quire {

enum class RequestEnd : uint8_t {
  kFinished,   // every choice had its finish reason
  kCancelled,  // the client left
  kFailed,     // see error
  kRejected,   // by admission, after it had entered: see error
};
std::string_view RequestEndName(RequestEnd end);
std::string_view ApiCodeName(ApiCode code);  // "deadline_exceeded"

// How its tokens were drawn; no choices: it ended before that was settled.
struct SampledWith : kernels::SampleNumbers {
  uint32_t choices = 0;
  int32_t max_tokens = 0;
};

struct RequestRecord {
  // The key under which workers record its attempts.
  RouterInstance router;
  RequestNumber request;
  std::string request_id;  // the client's, only passed along
  std::string tenant;
  std::string model;  // the served name
  std::string model_id;
  std::string adapter;                        // digest; empty: the model alone
  std::string operation = "text_completion";  // or "chat"
  trace::RequestTrace trace;
  int32_t priority = 0;
  bool streaming = false;
  SampledWith sampled_with;

  RequestEnd end = RequestEnd::kFinished;
  ApiCode error = ApiCode::kInternal;       // with kFailed and kRejected
  std::vector<std::string> finish_reasons;  // by choice; empty: it had none

  // Prompt and cached are 0 unless a worker admitted the request.
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint64_t resumed_tokens = 0;    // outputs that the client brought along from another router
  uint64_t accepted_tokens = 0;   // outputs taken from workers
  uint64_t delivered_tokens = 0;  // of these, passed to the client
  uint64_t discarded_tokens = 0;  // of these, dropped because they follow a stop string or the like

  std::vector<AttemptReport> attempts;  // at most kMaxRecordedAttempts: the first and the last ones
  uint32_t attempts_total = 0;
  bool inexact = false;  // some attempt continued under other numerics

  // Microseconds; −1 where it did not get that far. Queued is the time from the start of its wait
  // to its first Submit.
  Micros queued_us = -1;
  Micros first_token_us = -1;  // since arrival
  Micros total_us = 0;
  Micros arrived_at = 0;  // on the router's own clock, like its attempts' times
};

// A request that has not ended: what it is doing, and its record so far.
struct RunningRequest {
  std::string_view state;  // a literal (pipeline/operator_views.h)
  RequestRecord record;
};
inline constexpr size_t kMaxRunningListed = 512;

inline constexpr size_t kMaxRecordedAttempts = 32;
// Keeps the first attempts up to half of the limit, and the latest of the others.
void RecordAttempt(RequestRecord& record, const AttemptReport& report);

// One line without its newline, at most kMaxFileLineBytes: attempts are left out where it would be
// longer. `unix_seconds` is the wall time of the end.
std::string RequestRecordJson(const RequestRecord& record, int64_t unix_seconds);
// The same for operators: with its state ("ended", or the state of a running one) in place of a
// reason that is not known yet, and with the times of each attempt since the request's arrival.
std::string RequestTimelineJson(const RequestRecord& record, std::string_view state,
                                int64_t unix_seconds);

// Takes each record, without waiting.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  virtual void Write(const RequestRecord& record) = 0;
};

}  // namespace quire
