// What --device comes to on this machine, before anything is loaded: the settings say so from then
// on.
//
// Called by main, once, before other threads run; may start and reap a process.
#pragma once

#include "common/log/log.h"
#include "worker/config.h"
#include "worker/device/device_choice.h"
#include "worker/loaded_worker.h"

namespace quire {

// With GPUs `config` names one for each rank and has ranks that are processes: what fails with a
// device then costs no more than its ranks. False with `failure` filled in, as
// WorkerLoader::Prepare has it.
bool FindDevice(WorkerConfig& config, Logger& log, DeviceChoice& choice, StartFailure& failure);

}  // namespace quire
