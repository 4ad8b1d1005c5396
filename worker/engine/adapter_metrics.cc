#include "worker/engine/adapter_metrics.h"

#include <utility>

#include "common/check.h"

namespace quire {

AdapterMetrics::AdapterMetrics(const AdapterTable& adapters, const Clock& clock, Metrics& metrics)
    : max_loras_(adapters.max_loras()),
      clock_(clock),
      metrics_(metrics),
      uses_(static_cast<size_t>(adapters.max_loras())),
      held_(metrics.AddGauge({"quire_worker_lora_adapters", "Names of adapters that it serves."})) {
  QUIRE_CHECK(adapters.max_loras() >= 0);
  for (const AdapterInfo& adapter : adapters.List()) {
    const std::optional<int> slot = adapters.SlotOf(adapter.digest);
    if (slot) names_.emplace_back(adapter.name, *slot);
  }
  metrics.BeforeRender([this] { Render(); });
}

void AdapterMetrics::SetNames(std::vector<std::pair<std::string, int>> names) {
  MutexLock lock(mutex_);
  names_.swap(names);
}

void AdapterMetrics::Set(int slot, uint32_t running, uint32_t waiting) {
  QUIRE_CHECK(slot >= 0 && slot < slots());
  uses_[static_cast<size_t>(slot)].running.store(running, std::memory_order_relaxed);
  uses_[static_cast<size_t>(slot)].waiting.store(waiting, std::memory_order_relaxed);
}

void AdapterMetrics::Render() {
  std::vector<std::pair<std::string, int>> names;
  {
    MutexLock lock(mutex_);
    names = names_;
  }
  held_.Set(static_cast<double>(names.size()));
  std::string running, waiting;
  for (const auto& [name, slot] : names) {
    const Use& use = uses_.at(static_cast<size_t>(slot));
    if (use.running.load(std::memory_order_relaxed) > 0) {
      running += (running.empty() ? "" : ",") + name;
    }
    if (use.waiting.load(std::memory_order_relaxed) > 0) {
      waiting += (waiting.empty() ? "" : ",") + name;
    }
  }
  if (info_ != nullptr && running == shown_running_ && waiting == shown_waiting_) return;
  if (info_ != nullptr) metrics_.Remove(*info_);
  info_ = &metrics_.AddGauge({"vllm:lora_requests_info",
                              "Adapters of running and of waiting requests, as labels; the time "
                              "when they last changed.",
                              {{"max_lora", std::to_string(max_loras_)},
                               {"running_lora_adapters", running},
                               {"waiting_lora_adapters", waiting}}});
  info_->Set(static_cast<double>(clock_.UnixSeconds()));
  shown_running_ = std::move(running);
  shown_waiting_ = std::move(waiting);
}

}  // namespace quire
