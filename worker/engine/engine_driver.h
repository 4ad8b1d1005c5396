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

  // Any thread. False: the queue is full, the command was not taken.
  virtual bool TryPush(EngineCommand command) = 0;

  // The taker's thread. All outputs made so far, oldest first. After the callback `on_output`
  // (given to the driver) has been called it is not called again before the next TakeOutputs.
  virtual std::vector<EngineOutput> TakeOutputs() = 0;

  // Any thread, any time.
  virtual const StepProgress& progress() const = 0;
};

// Makes one output of two that follow each other; a router may then stand in it more than once.
void MergeOutput(EngineOutput& into, EngineOutput from);

// The outputs that wait for their taker. Not thread-safe: a driver guards it.
class OutputQueue {
 public:
  // True when the taker has to be told: it has taken everything since it was told last.
  bool Push(EngineOutput output);
  std::vector<EngineOutput> Take();

 private:
  std::vector<EngineOutput> outputs_;
  bool told_ = false;
};

// Whether a queue of `queued` commands takes a further one.
bool HasRoom(const EngineCommand& command, size_t queued);

}  // namespace quire
