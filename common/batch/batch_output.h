// The results of a batch: one JSON object on each line, appended as requests end, in any order.
//
// Append may be called on any thread; the rest has one owner.
//  1. A line is written whole by one write, so that a process that is killed leaves whole lines and
//     at most one torn one, at the end, which the next Open cuts off.
//  2. A result's id holds the number of its request's line in the input: with it the next run finds
//     out what is done, whether or not the request had a custom_id.
//  3. One process at a time has the file open.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/batch/batch_input.h"
#include "common/status.h"
#include "common/sync.h"

namespace quire::batch {

inline constexpr std::string_view kBatchResultPrefix = "batch_req_";
inline constexpr size_t kMaxResultBytes = 256u << 20;    // of one line
inline constexpr size_t kMaxResultHeadBytes = 1u << 20;  // of one line, without an answer's body

// What is known of a line that has its result.
struct BatchDone {
  std::string custom_id;  // empty: null
  bool failed = false;    // an error, or a status that is none of success
};

struct BatchAnswer {
  int status = 0;
  std::string request_id;
  std::string body;
  bool is_json = false;  // known to be: it stays as it is, unread
};

// Lines of a result, without the line's end; pure.
std::string AnswerLine(size_t number, std::string_view custom_id, const BatchAnswer& answer);
std::string FaultLine(size_t number, std::string_view custom_id, std::string_view code,
                      std::string_view message);

class BatchOutput {
 public:
  // Makes the file where it is not there. FAILED_PRECONDITION: another process writes to it;
  // INVALID_ARGUMENT: it holds something else than results.
  static absl::StatusOr<std::unique_ptr<BatchOutput>> Open(BatchFile file,
                                                           const std::atomic<bool>& cancelled);
  ~BatchOutput();
  BatchOutput(const BatchOutput&) = delete;

  // By number of the request's line: what the file held when it was opened.
  const std::map<size_t, BatchDone>& done() const { return done_; }
  absl::Status Append(std::string line);
  // Waits until the disk has all of it.
  absl::Status Sync();

 private:
  BatchOutput(BatchFile file, int fd) : file_(std::move(file)), fd_(fd) {}
  absl::Status ReadDone(const std::atomic<bool>& cancelled);
  absl::Status Failed(const char* what) const;

  const BatchFile file_;
  const int fd_;
  std::map<size_t, BatchDone> done_;
  Mutex mutex_;
  int64_t size_ ABSL_GUARDED_BY(mutex_) = 0;  // of the whole lines
};

}  // namespace quire::batch
