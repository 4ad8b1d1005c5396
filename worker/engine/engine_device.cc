// What happens when the engine's device is lost, and when it is back: all attempts end, to be
// resumed elsewhere, and the engine starts over with an empty cache.
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/engine/engine_state.h"

namespace quire {
namespace {

constexpr char kDeviceLost[] = "UNAVAILABLE: the worker's device was lost";

}  // namespace

bool Engine::device_lost() const { return state_->device_lost; }

bool Engine::DeviceThere(int64_t now_us) {
  State& state = *state_;
  if (state.device_there) {
    if (!state.runner.Lost()) return true;
    state.LoseDevice(now_us);
    return false;
  }
  QUIRE_CHECK(state.device_lost && state.requests.live().empty());
  if (!state.runner.Restore()) return false;
  if (QUIRE_BUG(cache_outlives_the_device)) return state.device_there = true;
  // Rows, pages and the index of what they held are gone with the device.
  auto fresh = std::make_unique<State>(state.options, state.runner, state.progress);
  fresh->TakeOver(state);
  state_ = std::move(fresh);
  return true;
}

void Engine::State::LoseDevice(int64_t now_us) {
  QUIRE_CHECK(device_there && runner.Lost());
  device_there = false;
  device_lost = true;
  ++devices_lost;
  progress.device_lost.store(true);
  record_us = now_us;
  while (!requests.live().empty()) {
    EndRequest(*requests.live().begin()->second, {.reason = EndReason::kFailed,
                                                  .message = kDeviceLost,
                                                  .retryable = true,
                                                  .cause = FailureCause::kDeviceLost});
  }
  if (probe.place != SequencePlace::kNone) scheduler.Remove(probe);
  for (Launched& step : in_flight) DropStep(step);
  in_flight.clear();
  progress.running_since_us.store(0);
  QUIRE_CHECK(scheduler.Idle());
}

// As if it had been committed after all its rows had ended: their overrun was counted then.
void Engine::State::DropStep(Launched& step) {
  for (const PlannedRow& row : step.rows) {
    const Choice& choice = static_cast<const Choice&>(*row.sequence);
    const bool taken = scheduler.CommitRow(row, -1);
    QUIRE_CHECK_MSG(!taken, "a sequence outlives the device");
    if (choice.off_the_books || QUIRE_BUG(lost_samples_not_booked)) continue;
    totals.generated_tokens += row.sample;
    totals.discarded_tokens += row.sample;
  }
  scheduler.CommitStep(step.number, step.rows);
}

// The counts that continue on the new device.
void Engine::State::TakeOver(const State& old) {
  QUIRE_CHECK(old.in_flight.empty() && old.requests.Empty());
  totals = before = old.totals;
  next_sequence = old.next_sequence;
  next_arrival = old.next_arrival;
  adapter_slots = old.adapter_slots;
  adapters_placed = old.adapters_placed;
  draining = old.draining;
  drain_deadline_us = old.drain_deadline_us;
  device_lost = true;
  devices_lost = old.devices_lost;
}

}  // namespace quire
