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

#include "common/json/json.h"
#include "common/status.h"

namespace quire::cli {

inline constexpr size_t kMaxBatchLines = 1'000'000;
inline constexpr size_t kMaxBatchLineBytes = 32u << 20;  // as --max-body-bytes of a router
inline constexpr size_t kMaxCustomIdBytes = 512;

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
BatchFault ParseBatchLine(std::string_view text, BatchRequest& request);

class BatchInput {
 public:
  // NOT_FOUND where the file cannot be read, INVALID_ARGUMENT for one with too many lines.
  static absl::StatusOr<std::unique_ptr<BatchInput>> Open(const std::string& path,
                                                          const std::atomic<bool>& cancelled);
  ~BatchInput();
  BatchInput(const BatchInput&) = delete;

  // In the order of the file; those without a fault have different custom_ids.
  const std::deque<BatchLine>& lines() const { return lines_; }
  // The request of a line without a fault. DATA_LOSS: the file has changed since Open.
  absl::StatusOr<BatchRequest> Read(const BatchLine& line) const;

 private:
  BatchInput(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status ReadLines(const std::atomic<bool>& cancelled);
  void FindDuplicates();

  const std::string path_;
  const int fd_;
  std::deque<BatchLine> lines_;
};

}  // namespace quire::cli
