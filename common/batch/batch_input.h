// The requests of a batch file: one JSON object on each line, as OpenAI's batches have them.
//
// Open reads the whole file once and judges each line; a line's text is read again when it is sent,
// so that what is kept of a file is its custom_ids. Immutable after Open: any thread may Read.
//  1. A line is either sent or has a fault: a broken line never ends a batch.
//  2. Lines are named by their number in the file, from 1; blank lines are no requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/json/json.h"
#include "common/status.h"

namespace quire::batch {

inline constexpr size_t kMaxBatchLines = 1'000'000;      // of any reader
inline constexpr size_t kMaxBatchLineBytes = 32u << 20;  // as --max-body-bytes of a router
inline constexpr size_t kMaxCustomIdBytes = 512;

// A file, its name in errors, and whether it may be reached by a link.
struct BatchFile {
  std::string path;
  std::string name;
  bool follow_links = true;
};

struct BatchLimits {
  size_t max_lines = kMaxBatchLines;
  size_t max_line_bytes = kMaxBatchLineBytes;
  json::Limits json = {};      // of a line's tree; a hold counts one line at a time
  std::string only_path = {};  // of all lines; empty: any that is served
};

// Why a line is not sent, in the words of the format's error object; no code: it is.
struct BatchFault {
  std::string code, message;
};

struct BatchLine {
  size_t number = 0;
  int64_t offset = 0;
  size_t bytes = 0;
  std::string custom_id;  // empty: it has none that can be used
  std::unique_ptr<const BatchFault> fault;
};

struct BatchRequest {
  std::string custom_id;
  std::string path;
  json::Object body;
};

// One line as it stands; pure. With a fault, `request.custom_id` may be there all the same.
BatchFault ParseBatchLine(std::string_view text, BatchRequest& request,
                          const BatchLimits& limits = {});

class BatchInput {
 public:
  // NOT_FOUND where the file cannot be read, INVALID_ARGUMENT for one with too many lines,
  // UNAVAILABLE where the hold has no room.
  static absl::StatusOr<std::unique_ptr<BatchInput>> Open(BatchFile file, const BatchLimits& limits,
                                                          const std::atomic<bool>& cancelled);
  ~BatchInput();
  BatchInput(const BatchInput&) = delete;

  // In the order of the file; those without a fault have different custom_ids.
  const std::deque<BatchLine>& lines() const { return lines_; }
  // The request of a line without a fault; `hold` is charged with the memory of its tree.
  // DATA_LOSS: the file has changed since Open; UNAVAILABLE: the hold has no room.
  absl::StatusOr<BatchRequest> Read(const BatchLine& line, MemoryHold* hold = nullptr) const;

 private:
  BatchInput(BatchFile file, const BatchLimits& limits, int fd)
      : file_(std::move(file)), limits_(limits), fd_(fd) {}
  absl::Status ReadLines(const std::atomic<bool>& cancelled);
  void FindDuplicates();

  const BatchFile file_;
  BatchLimits limits_;
  const int fd_;
  std::deque<BatchLine> lines_;
};

}  // namespace quire::batch
