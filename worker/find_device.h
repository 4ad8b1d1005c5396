// Finds the devices that --device means on this machine, and reads their state while they are used.
//
// main calls FindDevice once before anything is loaded or another thread runs; it may start and
// reap a process, and it writes what it has found into the settings. The loader calls the others on
// its thread.
#pragma once

#include <memory>
#include <string>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "worker/config.h"
#include "worker/device/device_choice.h"
#include "worker/device/device_monitor.h"
#include "worker/loaded_worker.h"

namespace quire {

// PATH, of main's environment: where shells look for programs, Python among them.
std::string SearchPath(const char* const* envp);

// With GPUs, `config` afterwards names one for each rank, and ranks are processes: a failing device
// then costs no more than its ranks. False with `failure` filled in, as WorkerLoader::Prepare does.
bool FindDevice(WorkerConfig& config, Logger& log, DeviceChoice& choice, StartFailure& failure);

// Reads the GPUs of the ranks from now on; null where ranks have none.
std::unique_ptr<DeviceMonitor> MonitorDevices(const WorkerConfig& config,
                                              const DeviceChoice& choice, Metrics& metrics,
                                              Logger& log);
// What happened to the ranks, and what is wrong with their GPUs; `monitor` may be null.
absl::Status WithFaults(const absl::Status& status, DeviceMonitor* monitor);

}  // namespace quire
