// One batch under way: sends its lines, a bounded number at a time, until each has its result.
//
// Owner: the runner; event loop only. Disk work runs on the runner's background, one piece at a
// time.
//
//  1. A line has one result, or none where the batch was cancelled: what is written is done, also
//     for the next run.
//  2. A line is sent again while the fleet is busy, up to three times when it fails; every other
//     answer is its result. An answer that cannot be written waits until it can.
//  3. After Stop nothing new is written, and another router may carry on.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/batch/batch_output.h"
#include "common/batch/treatment.h"
#include "common/log/log.h"
#include "common/runtime/timer.h"
#include "router/batches/run_files.h"
#include "router/batches/sender.h"

namespace quire::batches {

inline constexpr Micros kFirstPause = kMicrosPerSecond / 2;
inline constexpr Micros kLongestPause = 8 * kMicrosPerSecond;
inline constexpr Micros kLongestRetryAfter = 60 * kMicrosPerSecond;

// What all batches of a router share; outlives them.
struct RunWorld {
  Executor& executor;
  Background& disk;  // one thread
  Store& store;
  Sender& sender;
  BatchMetrics& metrics;
  Rng& rng;
  Logger& log;
  batch::BatchLimits lines;  // of one line
};

class BatchRun : public std::enable_shared_from_this<BatchRun> {
 public:
  // `ended` runs once, unless Stop came before; its argument: the batch ended here.
  BatchRun(RunWorld& world, OpenBatch open, std::function<void(bool)> ended);
  ~BatchRun();

  void Begin();
  // For a client that asked for its end.
  void Cancel();
  // Cancels the lines that are under way, and lets go of the batch.
  void Stop();

 private:
  struct Line {
    const batch::BatchLine* line = nullptr;
    std::unique_ptr<SentLine> sent;
    int tries = 0;
    int server_failures = 0;
    std::shared_ptr<const batch::BatchAnswer> result;  // that waits to be written
    bool failed = false;
    std::unique_ptr<MemoryHold> hold;  // of the result
    std::unique_ptr<Timer> pause;
  };

  void OnDisk(std::function<void(RunFiles&)> work, std::function<void()> done);
  void Locked(RunFiles::Ready ready);
  void Prepared(RunFiles::Ready ready);
  void Fill();
  void ReadLine(size_t number);
  void SendLine(size_t number, std::string body, std::shared_ptr<MemoryHold> hold);
  void OnAnswer(size_t number, LineAnswer answer);
  void Again(size_t number, Micros retry_after);
  void Write(size_t number);
  void Written(size_t number, const absl::Status& status);
  void Tick();
  void End(Status status);
  void FinishWhenIdle();
  void Leave(bool ended_here);
  Micros PauseOf(int tries);
  void ShowInFlight();

  RunWorld& world_;
  const std::string id_;
  std::function<void(bool)> ended_;
  std::shared_ptr<RunFiles> files_;
  std::shared_ptr<const TenantProfile> tenant_;
  std::map<size_t, Line> active_;  // by number
  size_t next_ = 0;                // of todo
  size_t shown_in_flight_ = 0;
  Counts counts_;
  size_t jobs_ = 0;  // on the disk's thread, or on their way to it
  bool prepared_ = false;
  bool cancelled_ = false;
  bool ending_ = false;
  bool finishing_ = false;
  bool stopped_ = false;
  bool saving_ = false;
  Status ends_as_ = Status::kCompleted;
  std::vector<const batch::BatchLine*> left_;
  Timer fill_timer_{world_.executor};
  Timer tick_timer_{world_.executor};
  Timer retry_timer_{world_.executor};
};

}  // namespace quire::batches
