// Runs an engine somewhere and lets one session thread talk to it through two bounded queues.
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
// When its taker is slower, further outputs are merged into the last one.
inline constexpr size_t kMaxQueuedOutputs = 256;

class EngineDriver {
 public:
  virtual ~EngineDriver() = default;

  // Any thread. False: the queue is full, and the command is as it was.
  virtual bool TryPush(EngineCommand&& command) = 0;

  // The taker's thread. Puts all outputs made so far into `outputs`, oldest first. What `outputs`
  // held, outputs that have been read, is written into again: so that the engine allocates nothing
  // for what it says, the taker copies out of them and hands them back. After the callback
  // `on_output` (given to the driver) has been called it is not called again before the next
  // TakeOutputs.
  virtual void TakeOutputs(std::vector<EngineOutput>& outputs) = 0;

  // Any thread, any time.
  virtual const StepProgress& progress() const = 0;
};

// Makes one output of two that follow each other; a router may then stand in it more than once.
void MergeOutput(EngineOutput& into, EngineOutput from);

// Outputs that have been read and wait to be written into again; further ones are given up.
inline constexpr size_t kMaxSpareOutputs = 32;

// The outputs that wait for their taker. Not thread-safe: a driver guards it. Push and Take move a
// bounded number of values, whatever these hold.
class OutputQueue {
 public:
  OutputQueue();

  // Takes `output` and leaves one to be written into in its place. True when the taker has to be
  // told: it has taken everything since it was told last.
  bool Push(EngineOutput& output);
  // See EngineDriver::TakeOutputs. Of what comes back the caller keeps no more than
  // kMaxSpareOutputs: what is given up is not destroyed under its lock.
  void Take(std::vector<EngineOutput>& outputs);

 private:
  std::vector<EngineOutput> outputs_;
  std::vector<EngineOutput> spare_;
  bool told_ = false;
};

// Whether a queue of `queued` commands takes a further one.
bool HasRoom(const EngineCommand& command, size_t queued);

}  // namespace quire
