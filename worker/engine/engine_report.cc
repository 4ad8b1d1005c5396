// The report of a round: outputs, the cache's changes, the load, and when the next round is due.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "worker/engine/adapter_metrics.h"
#include "worker/engine/engine_state.h"

namespace quire {

quire::Load Engine::State::MakeLoad() const {
  const SchedulerLoad scheduled = scheduler.Load();
  const BlockPool& pool = scheduler.kv().pool();
  quire::Load load;
  const bool probing = probe.place == SequencePlace::kRunning;
  load.running_rows = scheduled.running_rows - (probing ? 1 : 0);
  load.waiting_requests = scheduled.waiting;
  load.waiting_prefill_tokens = scheduled.waiting_prefill_tokens;
  load.running_prefill_tokens = scheduled.running_prefill_tokens;
  const int64_t probe_pages = probing ? scheduler.kv().PeakPages(1, 1) : 0;
  QUIRE_CHECK(probe_pages <= pool.held());
  load.free_blocks = static_cast<uint64_t>(pool.free() + probe_pages);
  load.evictable_blocks = static_cast<uint64_t>(pool.evictable());
  load.held_blocks = static_cast<uint64_t>(pool.held() - probe_pages);
  load.steps_total = totals.steps;
  return load;
}

int64_t Engine::State::NextWakeup(int64_t now_us) const {
  // A drain's deadline that has passed has taken effect: only the steps in flight are waited for.
  const int64_t drain_us = now_us < drain_deadline_us ? drain_deadline_us : kNeverMicros;
  const int64_t timeout_us = std::min(next_timeout_us, drain_us);
  if (!in_flight.empty()) return std::min(std::max(now_us, runner.ReadyAt()), timeout_us);
  if (!device_there) return now_us + kDeviceLookInterval;
  if (!scheduler.Idle() || cache_reports.Pending()) return now_us;
  return std::min(timeout_us, next_probe_us);
}

void Engine::State::Report(int64_t now_us, EngineOutput& output) {
  requests.Sweep();
  QUIRE_CHECK(totals.discarded_tokens <= totals.generated_tokens);
  out.Take(output);
  output.stepped = std::exchange(stepped, false);
  output.step_predicted_us = std::exchange(stepped_predicted_us, 0);
  ReportCache(output);
  output.adapters.clear();
  output.adapters.swap(adapters_placed);
  output.load = MakeLoad();
  totals.scheduler = Sum(before.scheduler, scheduler.totals(), kSchedulerCounts);
  if (options.drafter != nullptr) totals.draft_evictions = options.drafter->Evictions();
  totals.cache = Sum(before.cache, scheduler.kv().totals(), kCacheCounts);
  if (options.metrics != nullptr) options.metrics->Publish(totals, output.load);
  if (options.adapter_metrics != nullptr && options.adapter_metrics->slots() > 0) {
    PublishAdapters();
  }
  output.device_lost = device_lost;
  output.devices_lost = devices_lost;
  output.drained = draining && requests.Empty() && in_flight.empty();
  output.next_wakeup_us = output.drained ? kNeverMicros : NextWakeup(now_us);
}

void Engine::State::PublishAdapters() {
  struct Use {
    uint32_t running = 0;
    uint32_t waiting = 0;
  };
  std::vector<Use> uses(static_cast<size_t>(options.adapter_metrics->slots()));
  for (const auto& [key, request] : requests.live()) {
    QUIRE_CHECK_MSG((request->adapter_slot < 0) == request->submit.adapter.empty(),
                    "who names an adapter has its slot");
    if (request->adapter_slot < 0) continue;
    Use& use = uses.at(static_cast<size_t>(request->adapter_slot));
    ++(request->Admitted() ? use.running : use.waiting);
  }
  for (size_t slot = 0; slot < uses.size(); ++slot) {
    options.adapter_metrics->Set(static_cast<int>(slot), uses[slot].running, uses[slot].waiting);
  }
}

// What was published and withdrawn since the last round, and the next slice of a snapshot: after
// the step, and one after another while there is none.
void Engine::State::ReportCache(EngineOutput& output) {
  CacheEventLog& events = scheduler.cache().events();
  output.event_seq = events.Seq();
  output.first_event_seq = events.first_seq();
  if (cache_reports.watched()) {
    events.Take(output.events);
  } else {
    output.events.clear();
    events.Forget();
  }
  cache_reports.Slice(scheduler.cache(), output.snapshot_parts);
}

}  // namespace quire
