// Looks at the ranks' GPUs now and then through NVML: metrics for each rank, and what was wrong
// with a device when a rank was lost.
//
// Owner: LoadedWorker. A thread of its own opens the library and reads; nothing waits for that
// thread for longer than it says here, and where a driver hangs it is left behind: what it holds is
// its own. Metrics appear with the first reading that tells their value; without NVML there are
// none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "kernels/libraries/shared_library.h"

namespace quire {

inline constexpr int64_t kDeviceLookMicros = 300'000;  // that a look at failed GPUs is waited for

struct DeviceMonitorOptions {
  kernels::LibraryPlaces places;
  std::vector<std::string> uuids;       // of the ranks' devices, in their order
  int64_t interval_micros = 5'000'000;  // between two looks
  int64_t end_micros = 500'000;         // that the thread's end is waited for
};

class DeviceMonitor {
 public:
  // `metrics` and `log` outlive it.
  DeviceMonitor(DeviceMonitorOptions options, Metrics& metrics, Logger& log);
  ~DeviceMonitor();
  DeviceMonitor(const DeviceMonitor&) = delete;
  DeviceMonitor& operator=(const DeviceMonitor&) = delete;

  // "rank 0: XID 79, 91 C, …; rank 1: …" after a look that begins from now on, or when
  // `wait_micros` are over as of the last one. Empty where nothing is known. Any thread.
  std::string Note(int64_t wait_micros = kDeviceLookMicros);
  // The same, of ranks whose devices have faults.
  std::string Faults(int64_t wait_micros = kDeviceLookMicros);

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's too
};

// Where NVML is: with the driver, where the loader looks.
kernels::LibraryPlaces NvmlPlaces();

}  // namespace quire
