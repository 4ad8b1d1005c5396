// Runs an engine on a separate thread, as fast as there is work and not at all when there is none.
//
// Owner: worker/main. Invariants: those of EngineDriver. The thread waits only for commands and for
// the engine's next wake-up, never for a taker; no callback runs under the lock, and code under it
// moves a bounded number of values.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "common/runtime/runtime.h"
#include "common/sync.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_driver.h"

namespace quire {

class EngineThread final : public EngineDriver {
 public:
  // Engine, progress and clock outlive this object. `on_output` is called on the engine's thread
  // and must not wait: it posts TakeOutputs to the taker's executor.
  EngineThread(Engine& engine, const StepProgress& progress, const Clock& clock,
               std::function<void()> on_output);
  ~EngineThread() override;  // stops

  void Start();
  // Any thread: the engine runs a round soon, even when it has nothing to do.
  void Wake();
  // Returns when the thread has ended, after the running step. Idempotent.
  void Stop();

  bool TryPush(EngineCommand&& command) override;
  void TakeOutputs(std::vector<EngineOutput>& outputs) override;
  const StepProgress& progress() const override { return progress_; }

 private:
  void Run();
  // Waits until there is a command, `until_us` has come, or the end. False: the end.
  bool WaitForWork(int64_t until_us,
                   std::deque<EngineCommand>& commands) ABSL_NO_THREAD_SAFETY_ANALYSIS;

  Engine& engine_;
  const StepProgress& progress_;
  const Clock& clock_;
  std::function<void()> on_output_;

  Mutex mutex_;
  std::condition_variable wake_;
  std::deque<EngineCommand> commands_ ABSL_GUARDED_BY(mutex_);
  OutputQueue outputs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire
