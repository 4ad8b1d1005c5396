// Runs an engine somewhere and connects one session thread to it through two bounded queues.
//
// Two drivers exist: a real thread (engine_thread.h) and virtual time (virtual_engine_driver.h).
// Invariants:
// 1. Nothing here waits: a full queue is a result.
// 2. Outputs come in the order in which the engine made them; none is lost.
#pragma once

#include <vector>

#include "worker/core/engine_io.h"

namespace quire {

// Submits above the first limit are refused by TryPush, so that the commands that free resources
// (Cancel, Finish, Grant, RouterLost, Drain) still find room up to the second.
inline constexpr size_t kMaxQueuedSubmits = 4096;
inline constexpr size_t kMaxQueuedCommands = 65536;
// When the taker is slower, further outputs are merged into the last one.
inline constexpr size_t kMaxQueuedOutputs = 256;

class EngineDriver {
 public:
  virtual ~EngineDriver() = default;

  // Any thread. False: the queue is full, and the command is unchanged.
  virtual bool TryPush(EngineCommand&& command) = 0;

  // The taker's thread. Moves all outputs made so far into `outputs`, oldest first. The outputs
  // that `outputs` held before, which have been read, are reused: the taker copies out of them and
  // returns them, so that the engine allocates nothing for its outputs. After the callback
  // `on_output` (an argument of the driver) has been called, it is not called again before the next
  // TakeOutputs.
  virtual void TakeOutputs(std::vector<EngineOutput>& outputs) = 0;

  // Any thread, any time.
  virtual const StepProgress& progress() const = 0;
};

// Merges two consecutive outputs into one, in which a router may then appear more than once.
void MergeOutput(EngineOutput& into, EngineOutput from);

// Outputs that have been read and wait for reuse; further ones are destroyed.
inline constexpr size_t kMaxSpareOutputs = 32;

// The outputs that wait for their taker. Not thread-safe: the driver locks it. Push and Take move a
// bounded number of values, whatever these hold.
class OutputQueue {
 public:
  OutputQueue();

  // Takes `output` and leaves one for reuse in its place. True when the taker must be notified: it
  // has taken everything since the last notification.
  bool Push(EngineOutput& output);
  // See EngineDriver::TakeOutputs. The queue keeps at most kMaxSpareOutputs of the returned
  // outputs; the caller destroys the others, outside of the lock.
  void Take(std::vector<EngineOutput>& outputs);

 private:
  std::vector<EngineOutput> outputs_;
  std::vector<EngineOutput> spare_;
  bool told_ = false;
};

// Whether a queue of `queued` commands accepts a further one.
bool HasRoom(const EngineCommand& command, size_t queued);

}  // namespace quire
