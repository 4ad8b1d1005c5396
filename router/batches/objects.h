// Files and batches as OpenAI's API has them, and as they are kept on disk.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json/json.h"
#include "common/status.h"
#include "router/core/result.h"
#include "router/core/tenant.h"

namespace quire::batches {

inline constexpr std::string_view kFilePrefix = "file-";
inline constexpr std::string_view kBatchPrefix = "batch_";
inline constexpr size_t kIdDigits = 32;  // hexadecimal: 14 of the time in µs, then random ones

inline constexpr std::string_view kInputPurpose = "batch";
inline constexpr std::string_view kOutputPurpose = "batch_output";

// Whether a client's word is the id of a file, or of a batch: only such words become names of files
// on disk.
bool IsId(std::string_view word, std::string_view prefix);
// The time in an id, in µs since 1970.
int64_t MicrosOfId(std::string_view id);

struct FileObject {
  std::string id;
  std::string filename;
  std::string purpose;
  int64_t bytes = 0;
  int64_t created_at = 0;  // unix seconds, as all times here
};

enum class Status : uint8_t {
  kValidating,
  kInProgress,
  kFinalizing,
  kCompleted,
  kFailed,
  kExpired,
  kCancelled,
};
inline bool HasEnded(Status status) { return status >= Status::kCompleted; }

// Why a batch failed.
struct BatchError {
  std::string code;
  std::string message;
  std::string param;  // empty: none
  std::optional<size_t> line;
};

struct Counts {
  size_t total = 0;
  size_t completed = 0;
  size_t failed = 0;
};

// What the creator of a batch may do. Its lines run under a key of the same tenant.
struct Creator {
  static Creator Of(const TenantProfile* profile);  // nullptr: no key was needed

  std::string tenant;
  std::vector<std::string> models;
  std::optional<int32_t> highest_priority;
};

struct BatchObject {
  std::string id;
  std::string endpoint;
  std::string input_file_id;
  Status status = Status::kValidating;
  Status ends_as = Status::kCompleted;  // in kFinalizing
  std::string output_file_id;           // chosen when it is finalised
  std::string error_file_id;
  bool has_output = false;
  bool has_errors = false;
  Counts counts;
  std::vector<BatchError> errors;
  std::vector<std::pair<std::string, std::string>> metadata;
  int64_t created_at = 0;
  int64_t expires_at = 0;
  int64_t in_progress_at = 0;  // 0: not yet, as the others
  int64_t finalizing_at = 0;
  int64_t cancelling_at = 0;
  int64_t ended_at = 0;
  Creator creator;
};

// What clients see.
std::string Json(const FileObject& file);
std::string Json(const BatchObject& batch);

// What is kept; reading it again gives the same. DATA_LOSS: it is nothing of ours.
std::string Kept(const FileObject& file);
std::string Kept(const BatchObject& batch);
absl::Status Read(std::string_view text, FileObject& file);
absl::Status Read(std::string_view text, BatchObject& batch);

// The body that creates a batch.
Result<BatchObject> ReadCreate(std::string_view body);

}  // namespace quire::batches
