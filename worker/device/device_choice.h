// From --device to where a worker computes: plugin, driver, devices and NCCL looked at in turn,
// each told in one line where it will not do.
//
// Blocking, once, before other threads run.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "kernels/libraries/shared_library.h"
#include "worker/device/device_request.h"

namespace quire {

struct DeviceSettings {
  std::string device = "auto";
  int ranks = 1;
  std::string plugin;  // where the user says that it is; empty: by the table of places
  std::string nccl;    // the same
  std::string driver_library = "libcuda.so.1";
  // Only a plan is made, for memory that the user has named: GPUs need not be here.
  bool for_a_plan = false;
  std::string hint;  // said behind what a driver or a device lacks
};

struct DeviceChoice {
  // What --device comes to here: "cpu", or "cuda:" with an index for each rank.
  std::string device = "cpu";
  // GPUs of the ranks, in their order; empty on the CPU.
  std::vector<kernels::cuda::DriverDevice> gpus;
  // Why auto took the CPU although a plugin for GPUs is here; empty: nothing to say.
  std::string note;
};

// INVALID_ARGUMENT (exit code 2) or UNAVAILABLE (4), as ChooseDevices has them. With `auto` nothing
// that a GPU lacks is an error.
absl::StatusOr<DeviceChoice> ChooseDevice(const DeviceSettings& settings);

// Bytes that a rank of these GPUs may plan with: what is free on the fullest one, less a margin for
// what driver and libraries take themselves. Requires: GPUs.
int64_t PlannedBytes(const DeviceChoice& choice);

// Where the plugin is looked for: of this project alone, it is in no wheel, toolkit or folder of
// the system.
kernels::LibraryPlaces PluginPlaces(const std::string& named);
// Where NCCL is, and cuBLASLt.
kernels::LibraryPlaces NcclPlaces(const std::string& named);
kernels::LibraryPlaces CublasLtPlaces(const std::string& named);

}  // namespace quire
