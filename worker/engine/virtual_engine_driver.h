// Runs an engine on an executor, in virtual time: the driver of simulation.
//
// One thread, the executor's. Steps take the time that the runner's ReadyAt returns. A frozen
// driver does nothing, like a stopped process or a step that never ends.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "common/runtime/timer.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_driver.h"

namespace quire {

class VirtualEngineDriver final : public EngineDriver {
 public:
  // All of them outlive this object. `on_output` runs on the executor.
  VirtualEngineDriver(Engine& engine, const StepProgress& progress, Executor& executor,
                      std::function<void()> on_output);

  void Start() { Wake(executor_.clock().Now()); }
  void SetFrozen(bool frozen);
  // Called with the output of each round before any other reader gets it. May be absent.
  void SetObserver(std::function<void(const EngineOutput&)> observer);

  bool TryPush(EngineCommand&& command) override;
  void TakeOutputs(std::vector<EngineOutput>& outputs) override { outputs_.Take(outputs); }
  const StepProgress& progress() const override { return progress_; }

 private:
  void Wake(Micros due);
  void Run();

  Engine& engine_;
  const StepProgress& progress_;
  Executor& executor_;
  std::function<void()> on_output_;
  std::function<void(const EngineOutput&)> observer_;
  std::deque<EngineCommand> commands_;
  EngineOutput output_;  // reused
  OutputQueue outputs_;
  Timer timer_{executor_};
  bool frozen_ = false;
};

}  // namespace quire
