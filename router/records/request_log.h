// Request records as JSON lines, for billing and audits.
//
// Owner: main; Write is called on the router's executor and never waits for the disk.
//  1. Every record becomes one line, or is counted as lost.
//  2. Numbers that may exceed 2^53 (router, epoch) are written as hexadecimal strings, as in the
//     workers' attempt records.
#pragma once

#include <memory>
#include <string>

#include "common/log/line_file.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "common/status.h"
#include "router/records/request_record.h"

namespace quire {

class RequestLog final : public RecordSink {
 public:
  // INVALID_ARGUMENT in one line when `path` cannot be written to. `clock` and `metrics` outlive
  // the log.
  static absl::StatusOr<std::unique_ptr<RequestLog>> Open(const std::string& path,
                                                          const Clock& clock, Metrics& metrics);

  void Write(const RequestRecord& record) override;

 private:
  RequestLog(const Clock& clock, Metrics& metrics);

  const Clock& clock_;
  Counter& offered_;
  Counter& lost_;
  std::unique_ptr<LineFile> file_;
};

}  // namespace quire
