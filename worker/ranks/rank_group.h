// The tensor-parallel ranks of a worker behind the engine's Runner: packets go to all of them, one
// result comes back, and they live and die together.
//
// Owner: worker/main. Launch, Collect and Restore belong to the engine's thread; the group's own
// supervising thread starts the ranks, watches them, takes them down and starts them again.
// Invariants:
// 1. A result is passed on only when it answers the step row by row, and every rank has returned
//    the digest of the same steps with the same tokens.
// 2. The first failure takes the group down: collectives are aborted and channels closed at once,
//    processes that have not gone after kRankGraceMicros are killed, and one that cannot be reaped
//    is not waited for. Then all ranks start again as a new generation.
// 3. A step's deadline is the group's timeout or the engine's own limit of that step, whichever is
//    later; the first steps of a generation have kWarmUpWaitMicros. Time in which this process did
//    not run does not count against a rank. A rank that a signal has stopped gets only the group's
//    timeout, whatever it was doing.
// 4. Two threads share a Generation: the engine's thread, until it has restored a later one, and
//    the supervising thread, until the generation's ranks have ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/log/log.h"
#include "common/sync.h"
#include "worker/core/engine_io.h"
#include "worker/ranks/expected_results.h"
#include "worker/ranks/rank_host.h"
#include "worker/ranks/rank_messages.h"
#include "worker/ranks/rank_metrics.h"
#include "worker/runner/runner.h"
#include "worker/runner/step_masks.h"

namespace quire {

inline constexpr int64_t kRankGraceMicros = 1'000'000;
// A rank that loads reports progress; one that has not done so for this long is stuck.
inline constexpr int64_t kRankStartSilenceMicros = 120'000'000;
inline constexpr int kWarmUpSteps = 3;
inline constexpr int kMaxFailedStarts = 5;  // in a row

struct RankGroupOptions {
  RankSetup setup;       // `rank` is filled in
  std::string identity;  // what every rank must report of itself
  int max_in_flight = 1;
  StepMasks* masks = nullptr;                        // of constrained rows; outlives the group
  std::shared_ptr<AdapterArena> adapters = nullptr;  // absent where none are served
  int64_t step_timeout_us = 5'000'000;
  const StepProgress* progress = nullptr;  // the engine's; outlives the group
  // What is known of the ranks' devices when they were lost, in one line for the log; may be
  // absent. Called on the supervising thread; may wait for a moment.
  std::function<std::string()> device_note = nullptr;
  // The group can neither continue nor come back: ends the process. Called on the supervising
  // thread.
  std::function<void(const std::string&)> on_hopeless;
};

class RankGroup final : public Runner {
 public:
  // `host`, `log` and `metrics` outlive the group.
  RankGroup(RankGroupOptions options, RankHost& host, Logger& log, RankMetrics& metrics);
  ~RankGroup() override;  // ends the ranks

  // Starts the ranks and waits until all are ready. A failure of this first start is final.
  absl::Status Start();
  // Ends the ranks; no callback runs from here on. Idempotent.
  void Stop();
  // Called on any thread when the group is lost and when it is back, so that an idle engine checks.
  // Must not wait. Set it before the engine's thread starts.
  void SetWaker(std::function<void()> waker);
  // After Start: pages of every rank, which may be fewer than its setup requests where a device had
  // no memory for more.
  int64_t page_count() const { return page_count_.load(); }

  void Launch(std::span<const std::byte> packet, int64_t now_us) override;
  void Collect(StepResult& result) override;
  int MaxInFlight() const override { return options_.max_in_flight; }
  // An ArenaAdapter of the options' arena. Ranks that start again get it again.
  void SetAdapter(int slot, std::shared_ptr<const kernels::AdapterWeights> adapter) override;
  bool Lost() const override;
  bool Restore() override;

 private:
  struct Generation;
  struct Flight {
    uint64_t packet_digest = 0;
    int64_t limit_us = 0;
  };

  // --- the engine's thread
  void Adopt(std::shared_ptr<Generation> generation);
  // To all ranks. False: the group is lost.
  bool SendAll(RankMessage kind, std::span<const std::byte> head, std::span<const std::byte> body,
               int64_t until_us);
  void SendMasks(int64_t until_us);
  bool SendAdapter(int slot);
  bool ReceiveResult(int rank, int64_t start_us, const Flight& flight, RankResult& result);

  // --- the supervising thread
  void Supervise();
  absl::Status StartRanks(Generation& generation);
  absl::Status AwaitReady(Generation& generation);
  absl::Status TakeGreeting(Generation& generation, int rank);
  void Watch(Generation& generation);
  // The rank that has been stopped by a signal for longer than a step may take, or −1.
  int FindStopped();
  void TakeDown(Generation& generation);
  bool AwaitEnds(int64_t until_us);
  void SayLost();
  // False: the group is to stop.
  bool WaitBeforeRestart(int64_t lived_us);
  void WaitForEvent(int64_t timeout_us);

  // Any thread: only the first failure of a generation counts.
  void Lose(Generation& generation, RankFailure why, const std::string& what);
  bool Failed(const Generation& generation) const;
  void Ring();
  void WakeEngine();

  const RankGroupOptions options_;
  RankHost& host_;
  Logger& log_;
  RankMetrics& metrics_;

  // The engine's thread.
  std::shared_ptr<Generation> mine_;
  std::deque<Flight> flights_;
  ExpectedResults expected_;
  uint64_t digest_ = 0;
  int64_t steps_ = 0;                 // collected of this generation
  int64_t last_end_us_ = 0;           // of a step
  ChannelMessage message_;            // reused
  RankResult result_;                 // reused
  std::vector<int64_t> device_free_;  // by rank, bytes
  std::vector<std::byte> head_;
  RankMasks masks_;                                                       // reused
  std::vector<std::shared_ptr<const kernels::AdapterWeights>> adapters_;  // by slot

  // The supervising thread.
  std::thread supervisor_;
  int event_fd_ = -1;
  int failed_starts_ = 0;
  int64_t backoff_us_ = 0;
  std::vector<int64_t> stopped_us_;  // by rank, while this process ran
  int64_t last_look_us_ = 0;
  int64_t fewest_pages_ = 0;  // of the ranks that have greeted
  int64_t device_bytes_ = 0;  // of all ranks together
  int64_t device_unused_ = 0;

  std::atomic<uint64_t> ready_{0};  // number of the current generation; 0: none
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> page_count_;
  mutable Mutex mutex_;
  std::function<void()> waker_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Generation> current_ ABSL_GUARDED_BY(mutex_);
  uint64_t failed_ ABSL_GUARDED_BY(mutex_) = 0;  // the last generation that failed
  RankFailure failure_ ABSL_GUARDED_BY(mutex_) = RankFailure::kDied;
  std::string failure_text_ ABSL_GUARDED_BY(mutex_);
  // The result of the first start; passed through first_done_.
  absl::Status first_start_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint32_t> first_done_{0};
};

}  // namespace quire
