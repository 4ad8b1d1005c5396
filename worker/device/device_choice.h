// From --device to where a worker computes: plugin, driver, devices and NCCL looked at in turn,
// each told in one line where it will not do.
//
// Blocking, once, before other threads run.
#pragma once

#include <string>

#include "common/status.h"
#include "worker/device/device_request.h"

namespace quire {

struct DeviceSettings {
  std::string device = "auto";
  int ranks = 1;
  std::string plugin;  // where the user says that it is; empty: by the table of places
  std::string nccl;    // the same
  std::string driver_library = "libcuda.so.1";
};

struct DeviceChoice {
  // Why auto took the CPU although a plugin for GPUs is here; empty: nothing to say.
  std::string note;
};

// INVALID_ARGUMENT (exit code 2) or UNAVAILABLE (4), as ChooseDevices has them. With `auto` nothing
// that a GPU lacks is an error.
absl::StatusOr<DeviceChoice> ChooseDevice(const DeviceSettings& settings);

}  // namespace quire
