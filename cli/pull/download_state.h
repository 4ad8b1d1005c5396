// What the threads of a download share: which chunk is next, what each file has become, and the
// first error, which ends them all.
//
// Any thread of the download; one mutex guards it.
//  1. A file's first chunk goes out alone: its answer says whether the server serves ranges. Where
//  it does not, the thread that asked takes the whole file.
//  2. A chunk is in one thread's hands at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/pull/download.h"
#include "cli/pull/part_file.h"
#include "common/sync.h"

namespace quire::pull {

struct FileState {
  const FileJob* job = nullptr;
  std::unique_ptr<PartFile> part;
  std::deque<int> open_chunks;  // in no thread's hands, and not complete
  enum class Serving { kUnknown, kAsked, kRanges, kWhole };
  Serving serving = Serving::kUnknown;
  std::optional<Address> leads_to;  // where its redirects ended
  bool finished = false;
};

struct Claim {
  FileState* file = nullptr;
  int chunk = 0;
};

class DownloadState {
 public:
  DownloadState(const FetchOptions& options) : options_(options) {}

  // Opens what there is of each file. Before any thread starts.
  absl::Status Open(const std::vector<FileJob>& jobs);

  // The next chunk, in the order of files; waits while one may come. None: no more, or the end.
  std::optional<Claim> Next();
  // The chunk is complete; or it goes back, for another try.
  void Complete(const Claim& claim);
  void PutBack(const Claim& claim);
  // What the head of an answer said. kWhole forgets all parts: that answer brings every byte.
  void SetServing(FileState& file, FileState::Serving serving);

  std::optional<Address> LeadsTo(FileState& file);
  void SetLeadsTo(FileState& file, std::optional<Address> address);

  // Counts bytes that were written, and waits where a limit asks for it.
  void Arrived(int64_t bytes);
  void CountRetry();
  // Waits for bytes of `file` past `hashed`, or for the end; false at an error.
  bool AwaitMore(const FileState& file, int64_t hashed, int generation);
  void Finish(FileState& file);

  void Fail(const absl::Status& status);
  // Sleeps; false as soon as the download has failed or was cancelled.
  bool Sleep(int64_t milliseconds);
  // Reports progress until all files are finished or one has failed.
  void Watch();

  std::vector<FileState>& files() { return files_; }
  int64_t BytesToCome() const;
  absl::Status status();
  FetchTotals totals();

 private:
  bool Cancelled() const { return options_.cancelled != nullptr && *options_.cancelled; }
  bool AllFinished() const;  // mutex_ held

  const FetchOptions& options_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::vector<FileState> files_;  // their lists and states; parts have atomics of their own
  FetchTotals totals_;
  absl::Status status_;
  int64_t total_bytes_ = 0;
  std::chrono::steady_clock::time_point free_at_ = {};  // when the bytes so far are paid for
};

}  // namespace quire::pull
