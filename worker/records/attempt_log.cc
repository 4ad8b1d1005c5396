#include "worker/records/attempt_log.h"

#include <utility>

#include "common/hex.h"
#include "common/json/json.h"
#include "common/trace/context.h"
#include "worker/records/attempt_traces.h"

namespace quire {

std::string AttemptRecordJson(const AttemptRecord& record, Epoch epoch, int64_t unix_seconds) {
  json::Object line;
  line["time"] = unix_seconds;
  line["epoch"] = HexOf(epoch.value());
  line["router"] = HexOf(record.router.value());
  line["request"] = record.key.request.value();
  line["attempt"] = record.key.attempt.value();
  line["request_id"] = record.request_id;
  if (std::string trace = trace::TraceIdOf(record.traceparent); !trace.empty()) {
    line["trace_id"] = trace;
  }
  line["tenant"] = record.tenant;
  if (!record.adapter.empty()) line["adapter"] = record.adapter;
  if (record.constraint.kind != ConstraintKind::kNone) {
    line["constraint"] = ConstraintKindName(record.constraint.kind);
    line["constraint_kept"] = record.constraint.kept;
    line["constraint_compile_us"] = record.constraint.compile_us;
    line["constraint_mask_us"] = record.constraint.mask_us;
  }
  line["choices"] = record.choices;
  line["reason"] = EndReasonName(record.reason);
  line["prompt_tokens"] = record.usage.prompt_tokens;
  line["cached_tokens"] = record.usage.cached_tokens;
  line["computed_tokens"] = record.usage.computed_tokens;
  line["recomputed_tokens"] = record.usage.recomputed_tokens;
  line["generated_tokens"] = record.usage.generated_tokens;
  line["discarded_tokens"] = record.usage.discarded_tokens;
  line["draft_tokens"] = record.usage.draft_tokens;
  line["accepted_draft_tokens"] = record.usage.accepted_draft_tokens;
  line["preemptions"] = record.preemptions;
  line["queue_us"] = record.queue_us;
  line["prefill_us"] = record.prefill_us;
  line["decode_us"] = record.decode_us;
  return json::Serialize(line);
}

AttemptLog::AttemptLog(const Clock& clock, Metrics& metrics)
    : clock_(clock),
      offered_(metrics.AddCounter(
          {"quire_worker_records_total", "attempt records that were to be written"})),
      lost_(metrics.AddCounter({"quire_worker_records_lost_total",
                                "of these, lost to a full queue or a file that takes no more"})) {}

absl::StatusOr<std::unique_ptr<AttemptLog>> AttemptLog::Open(const std::string& path,
                                                             const Clock& clock, Metrics& metrics) {
  std::unique_ptr<AttemptLog> log(new AttemptLog(clock, metrics));
  QUIRE_ASSIGN_OR_RETURN(
      log->file_,
      LineFile::Open({path, [&lost = log->lost_](uint64_t lines) { lost.Add(lines); }}));
  return log;
}

void AttemptLog::Start(Epoch epoch) {
  epoch_ = epoch;
  file_->Start();
}

void AttemptLog::Write(const AttemptRecord& record) {
  offered_.Add();
  file_->Offer(AttemptRecordJson(record, epoch_, clock_.UnixSeconds()));
}

}  // namespace quire
