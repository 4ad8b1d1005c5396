// Reads the state of the ranks' GPUs periodically through NVML: metrics for each rank, and what was
// wrong with a device when a rank was lost.
//
// Owner: LoadedWorker. A separate thread opens the library and reads; no caller waits for that
// thread longer than stated here, and where a driver hangs, the thread is abandoned: it owns
// everything that it uses. Metrics appear with the first reading that has their value; without NVML
// there are none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "kernels/libraries/shared_library.h"

namespace quire {

inline constexpr int64_t kDeviceLookMicros =
    300'000;  // how long a reading of failed GPUs is waited for

struct DeviceMonitorOptions {
  kernels::LibraryPlaces places;
  std::vector<std::string> uuids;       // of the ranks' devices, in their order
  int64_t interval_micros = 5'000'000;  // between two readings
  int64_t end_micros = 500'000;         // how long the thread's end is waited for
};

class DeviceMonitor {
 public:
  // `metrics` and `log` outlive it.
  DeviceMonitor(DeviceMonitorOptions options, Metrics& metrics, Logger& log);
  ~DeviceMonitor();
  DeviceMonitor(const DeviceMonitor&) = delete;
  DeviceMonitor& operator=(const DeviceMonitor&) = delete;

  // "rank 0: XID 79, 91 C, …; rank 1: …" after a reading that begins from now on, or when
  // `wait_micros` are over, after the last one. Empty where nothing is known. Any thread.
  std::string Note(int64_t wait_micros = kDeviceLookMicros);
  // The same for the ranks whose devices have faults.
  std::string Faults(int64_t wait_micros = kDeviceLookMicros);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread
};

// Where NVML is found: it comes with the driver, so the loader finds it.
kernels::LibraryPlaces NvmlPlaces();

}  // namespace quire
