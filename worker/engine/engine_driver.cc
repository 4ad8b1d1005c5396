#include "worker/engine/engine_driver.h"

#include <iterator>
#include <utility>

#include "common/check.h"
#include "worker/core/recycle.h"

namespace quire {
namespace {

template <class T>
void Append(std::vector<T>& into, std::vector<T>&& from) {
  into.insert(into.end(), std::make_move_iterator(from.begin()),
              std::make_move_iterator(from.end()));
}

}  // namespace

void MergeOutput(EngineOutput& into, EngineOutput from) {
  if (from.devices_lost != into.devices_lost) {
    // What was cached before is gone, and the routers that knew of it are no longer attached.
    into.events.clear();
    into.snapshot_parts.clear();
    into.event_seq = 0;
  }
  QUIRE_CHECK_MSG(from.event_seq >= into.event_seq, "outputs are merged in order");
  into.device_lost = from.device_lost;
  into.devices_lost = from.devices_lost;
  into.next_wakeup_us = from.next_wakeup_us;
  into.stepped = into.stepped || from.stepped;
  if (from.stepped) into.step_predicted_us = from.step_predicted_us;
  if (into.events.empty()) into.first_event_seq = from.first_event_seq;
  into.event_seq = from.event_seq;
  into.load = from.load;
  into.drained = into.drained || from.drained;
  Append(into.routers, std::move(from.routers));
  Append(into.events, std::move(from.events));
  Append(into.snapshot_parts, std::move(from.snapshot_parts));
  Append(into.records, std::move(from.records));
  Append(into.adapters, std::move(from.adapters));
}

OutputQueue::OutputQueue() {
  outputs_.reserve(kMaxQueuedOutputs);
  spare_.reserve(kMaxSpareOutputs);
}

bool OutputQueue::Push(EngineOutput& output) {
  if (outputs_.size() < kMaxQueuedOutputs) {
    outputs_.push_back(std::move(output));
  } else {
    MergeOutput(outputs_.back(), std::move(output));
  }
  output = EngineOutput();
  if (!spare_.empty()) {
    output = std::move(spare_.back());
    spare_.pop_back();
  }
  return !std::exchange(told_, true);
}

void OutputQueue::Take(std::vector<EngineOutput>& outputs) {
  QUIRE_CHECK_MSG(told_ || outputs_.empty(), "outputs wait and nobody was told");
  QUIRE_CHECK(outputs_.size() <= kMaxQueuedOutputs);
  told_ = false;
  ResizeRecycling(outputs, 0, spare_, kMaxSpareOutputs);
  QUIRE_CHECK(outputs.empty() && spare_.size() <= kMaxSpareOutputs);
  outputs.reserve(kMaxQueuedOutputs);
  outputs.swap(outputs_);
}

bool HasRoom(const EngineCommand& command, size_t queued) {
  return queued <
         (std::holds_alternative<SubmitCommand>(command) ? kMaxQueuedSubmits : kMaxQueuedCommands);
}

}  // namespace quire
