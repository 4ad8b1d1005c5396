// What --device comes to on this machine, and what those devices say while they are used.
//
// FindDevice is main's, called once before anything is loaded or another thread runs; it may start
// and reap a process, and the settings say from then on what it has found. The others are the
// loader's, on its thread.
#pragma once

#include <memory>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "worker/config.h"
#include "worker/device/device_choice.h"
#include "worker/device/device_monitor.h"
#include "worker/loaded_worker.h"

namespace quire {

// With GPUs `config` names one for each rank and has ranks that are processes: what fails with a
// device then costs no more than its ranks. False with `failure` filled in, as
// WorkerLoader::Prepare has it.
bool FindDevice(WorkerConfig& config, Logger& log, DeviceChoice& choice, StartFailure& failure);

// Looks at the GPUs of the ranks from now on; null where ranks have none.
std::unique_ptr<DeviceMonitor> MonitorDevices(const WorkerConfig& config,
                                              const DeviceChoice& choice, Metrics& metrics,
                                              Logger& log);
// What went wrong with ranks, and what is wrong with their GPUs; `monitor` may be null.
absl::Status WithFaults(const absl::Status& status, DeviceMonitor* monitor);

}  // namespace quire
