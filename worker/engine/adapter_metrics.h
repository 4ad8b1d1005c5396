// Which adapters requests use now, under vLLM's name and the worker's own.
//
// The engine counts on its thread, the rpc thread says what the slots are called; main's thread
// reads when metrics are rendered.
//  1. There is one series of vllm:lora_requests_info at a time, with the names as labels; its value
//     is the time when these last changed, as in vLLM (vllm/v1/metrics/loggers.py).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "common/sync.h"
#include "worker/adapters/adapter_table.h"

namespace quire {

class AdapterMetrics {
 public:
  // `adapters`: those at the start. Clock and metrics outlive this object.
  AdapterMetrics(const AdapterTable& adapters, const Clock& clock, Metrics& metrics);

  // Any thread: the names from now on, each with its slot.
  void SetNames(std::vector<std::pair<std::string, int>> names);

  // The engine's thread. Requests of the adapter in this slot that have rows, or have had some, and
  // those that wait for their first one.
  void Set(int slot, uint32_t running, uint32_t waiting);
  int slots() const { return static_cast<int>(uses_.size()); }

 private:
  struct Use {
    std::atomic<uint32_t> running{0};
    std::atomic<uint32_t> waiting{0};
  };
  void Render();

  const int max_loras_;
  const Clock& clock_;
  Metrics& metrics_;
  std::vector<Use> uses_;  // by slot
  Gauge& held_;
  Mutex mutex_;
  std::vector<std::pair<std::string, int>> names_ ABSL_GUARDED_BY(mutex_);
  std::string shown_running_, shown_waiting_;
  Gauge* info_ = nullptr;
};

}  // namespace quire
