#include "worker/engine/virtual_engine_driver.h"

#include <utility>

#include "common/check.h"

namespace quire {

VirtualEngineDriver::VirtualEngineDriver(Engine& engine, const StepProgress& progress,
                                         Executor& executor, std::function<void()> on_output)
    : engine_(engine), progress_(progress), executor_(executor), on_output_(std::move(on_output)) {
  QUIRE_CHECK(on_output_ != nullptr);
}

void VirtualEngineDriver::SetFrozen(bool frozen) {
  frozen_ = frozen;
  if (!frozen_) Wake(executor_.clock().Now());
}

void VirtualEngineDriver::SetObserver(std::function<void(const EngineOutput&)> observer) {
  observer_ = std::move(observer);
}

bool VirtualEngineDriver::TryPush(EngineCommand&& command) {
  if (!HasRoom(command, commands_.size())) return false;
  commands_.push_back(std::move(command));
  if (!frozen_) Wake(executor_.clock().Now());
  return true;
}

// One timer at a time, for the earliest requested wake-up.
void VirtualEngineDriver::Wake(Micros due) {
  if (!timer_.running() || due < timer_.due()) timer_.Set(due, [this] { Run(); });
}

void VirtualEngineDriver::Run() {
  if (frozen_) return;
  const Micros now = executor_.clock().Now();
  while (!commands_.empty()) {
    EngineCommand command = std::move(commands_.front());
    commands_.pop_front();
    engine_.Apply(std::move(command), now);
    engine_.CheckInvariants();
  }
  engine_.RunOnce(now, output_);
  engine_.CheckInvariants();
  if (observer_) observer_(output_);
  if (output_.next_wakeup_us != kNeverMicros) Wake(output_.next_wakeup_us);
  if (outputs_.Push(output_)) on_output_();
}

}  // namespace quire
