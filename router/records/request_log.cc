#include "router/records/request_log.h"

namespace quire {

RequestLog::RequestLog(const Clock& clock, Metrics& metrics)
    : clock_(clock),
      offered_(metrics.AddCounter(
          {"quire_router_records_total", "Request records that were to be written."})),
      lost_(metrics.AddCounter({"quire_router_records_lost_total",
                                "Of these, lost to a full queue or a file that takes no more."})) {}

absl::StatusOr<std::unique_ptr<RequestLog>> RequestLog::Open(const std::string& path,
                                                             const Clock& clock, Metrics& metrics) {
  std::unique_ptr<RequestLog> log(new RequestLog(clock, metrics));
  QUIRE_ASSIGN_OR_RETURN(
      log->file_,
      LineFile::Open({path, [&lost = log->lost_](uint64_t lines) { lost.Add(lines); }}));
  log->file_->Start();
  return log;
}

void RequestLog::Write(const RequestRecord& record) {
  offered_.Add();
  file_->Offer(RequestRecordJson(record, clock_.UnixSeconds()));
}

}  // namespace quire
