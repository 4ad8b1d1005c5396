// Writes lines for machines (records: one JSON object each) to a file, from its own thread.
//
// A caller of Offer never waits for the disk: lines go through a bounded queue, and those that do
// not fit are dropped and counted.
//  1. Every line in the file is complete: after a write that failed in the middle, the next line
//     begins on a new line.
//  2. A file that was moved or removed (rotation) is opened again under its path before the next
//     write.
//  3. written + lost = offered, once all lines have been processed (at the latest after
//     destruction).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "common/sync.h"

namespace quire {

inline constexpr size_t kMaxQueuedFileLines = 8192;
inline constexpr size_t kMaxFileLineBytes = 16384;

struct LineFileOptions {
  std::string path;
  // Called with the number of lines that were lost, on either thread; may be empty.
  std::function<void(uint64_t lines)> on_lost;
};

class LineFile {
 public:
  // Opens for appending, and creates what is missing (mode 0640). INVALID_ARGUMENT when the path
  // cannot be written to or is no regular file: one line that names the path and the reason.
  static absl::StatusOr<std::unique_ptr<LineFile>> Open(LineFileOptions options);
  ~LineFile();  // writes the queued lines

  // Starts to write. Lines that are offered before wait in the queue.
  void Start();

  // Any thread; never waits for the disk. `line` has no newline. False: it is lost, because the
  // queue is full or the line longer than kMaxFileLineBytes.
  bool Offer(std::string line);

  uint64_t written() const { return written_.load(std::memory_order_relaxed); }
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  LineFile(LineFileOptions options, int descriptor);
  void Run();
  void WriteBatch(const std::vector<std::string>& lines);
  void FollowThePath();
  void Lose(uint64_t lines);

  const LineFileOptions options_;
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> lost_{0};

  Mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::string> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Used by the writing thread.
  int descriptor_ = -1;
  bool torn_ = false;  // the file may end in the middle of a line
  std::thread thread_;
};

}  // namespace quire
