// Attempt records as JSON lines: the worker's half of the records, for billing and audits.
//
// Owner: main; Write is called on the rpc thread and never waits for the disk.
//  1. Every record becomes one line, or is counted as lost.
//  2. Numbers that may exceed 2^53 (router, epoch) are written as hexadecimal strings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/ids.h"
#include "common/log/line_file.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "common/status.h"
#include "worker/core/attempt_record.h"

namespace quire {

// One line without its newline. `unix_seconds` is the wall time of the attempt's end.
std::string AttemptRecordJson(const AttemptRecord& record, Epoch epoch, int64_t unix_seconds);

class AttemptLog {
 public:
  // INVALID_ARGUMENT in one line when `path` cannot be written to. `clock` and `metrics` outlive
  // the log.
  static absl::StatusOr<std::unique_ptr<AttemptLog>> Open(const std::string& path,
                                                          const Clock& clock, Metrics& metrics);

  // Before the first Write, once.
  void Start(Epoch epoch);
  void Write(const AttemptRecord& record);
  // Applies to the records from here on; the rpc thread.
  void SetEpoch(Epoch epoch) { epoch_ = epoch; }

 private:
  AttemptLog(const Clock& clock, Metrics& metrics);

  const Clock& clock_;
  Counter& offered_;
  Counter& lost_;
  Epoch epoch_;
  std::unique_ptr<LineFile> file_;
};

}  // namespace quire
