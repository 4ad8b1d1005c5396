// Which adapters requests use now, under vLLM's name and the worker's own.
//
// The engine counts on its thread; main's thread reads when metrics are rendered.
//  1. There is one series of vllm:lora_requests_info at a time, with the names as labels; its value
//     is the time when these last changed, as in vLLM (vllm/v1/metrics/loggers.py).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "worker/adapters/adapter_table.h"

namespace quire {

class AdapterMetrics {
 public:
  // All outlive this object.
  AdapterMetrics(const AdapterTable& adapters, const Clock& clock, Metrics& metrics);

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

  const AdapterTable& adapters_;
  const Clock& clock_;
  Metrics& metrics_;
  std::vector<Use> uses_;  // by slot
  Gauge& held_;
  std::string shown_running_, shown_waiting_;
  Gauge* info_ = nullptr;
};

}  // namespace quire
