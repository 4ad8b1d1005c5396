// What a running batch has on disk: its lock, its lines, its results so far.
//
// Blocking: one background thread at a time. The event loop reads `lines to do` and counts between
// two pieces of work.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/batch/batch_input.h"
#include "common/batch/batch_output.h"
#include "common/memory_account.h"
#include "router/batches/store.h"

namespace quire::batches {

class RunFiles {
 public:
  struct Options {
    batch::BatchLimits lines;  // of one line; the rest is set here
  };
  enum class Ready : uint8_t {
    kNo,     // another router runs it, or it has ended
    kLater,  // no memory now, or the disk fails
    kRun,    // `todo` has no results yet
    kEnds,   // as `ends_as`
  };

  RunFiles(Store& store, OpenBatch open, const Options& options, Counter& refused_lines)
      : store_(store), open_(std::move(open)), options_(options), refused_lines_(refused_lines) {}

  // Comes first: the lock and the description, with which the event loop finds the tenant.
  Ready Lock();
  // The lines, and what earlier runs have done of them. `memory` is the tenant's account.
  Ready Prepare(const std::shared_ptr<MemoryAccount>& memory);

  // The body of a line that is to be sent. DATA_LOSS: the input is not what it was; UNAVAILABLE: no
  // memory now.
  absl::StatusOr<std::string> ReadBody(const batch::BatchLine& line, MemoryHold& hold);
  // RESOURCE_EXHAUSTED: no room now; nothing was written.
  absl::Status Append(std::string line, bool failed);
  // Writes what is done so far, for clients that ask and for the next run.
  void Save(const Counts& counts);
  // Ends the batch; may be called again after an error. Lines in `left` were not answered in time.
  absl::Status Finish(Status ends_as, const Counts& counts,
                      const std::vector<const batch::BatchLine*>& left);

  // After Lock:
  const BatchObject& batch() const { return lease_->batch; }
  // After Prepare:
  const std::vector<const batch::BatchLine*>& todo() const { return todo_; }
  const Counts& counts() const { return counts_; }
  Status ends_as() const { return ends_as_; }

  std::atomic<bool> stopped{false};  // Prepare ends early
  // A batch that ends as failed has this besides what was found in its lines.
  std::vector<BatchError> more_errors;

 private:
  Ready Fails(std::string code, std::string message, std::string param = "");
  Ready OpenInput(const std::shared_ptr<MemoryAccount>& memory);
  bool FindErrors();
  Ready OpenOutputs();
  bool WriteFaults();

  Store& store_;
  const OpenBatch open_;
  const Options options_;
  Counter& refused_lines_;  // batches with too many
  std::unique_ptr<Lease> lease_;
  std::unique_ptr<MemoryHold> hold_;
  std::unique_ptr<batch::BatchInput> input_;
  std::unique_ptr<batch::BatchOutput> answers_, failures_;
  std::vector<const batch::BatchLine*> todo_;
  Counts counts_, saved_;
  Status ends_as_ = Status::kCompleted;
};

}  // namespace quire::batches
