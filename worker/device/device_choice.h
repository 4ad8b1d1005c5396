// Chooses where a worker computes, from --device: checks plugin, driver, devices and NCCL in turn,
// and reports in one line the first one that is unsuitable.
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
  std::string plugin;       // path that the user gave; empty: by the table of places
  std::string nccl;         // the same
  std::string search_path;  // PATH: its Python environments may hold libraries
  std::string driver_library = "libcuda.so.1";
  // Only a plan is made, for memory that the user has stated: no GPU need be present.
  bool for_a_plan = false;
  std::string hint;  // appended to an error about a driver or a device
};

struct DeviceChoice {
  // What --device means here: "cpu", or "cuda:" with an index for each rank.
  std::string device = "cpu";
  // GPUs of the ranks, in their order; empty on the CPU.
  std::vector<kernels::cuda::DriverDevice> gpus;
  // Why auto chose the CPU although a plugin for GPUs is present; empty: there is nothing to
  // report.
  std::string note;
};

// INVALID_ARGUMENT (exit code 2) or UNAVAILABLE (4), as ChooseDevices returns them. With `auto` a
// GPU that lacks something is not an error.
absl::StatusOr<DeviceChoice> ChooseDevice(const DeviceSettings& settings);

// Bytes that a rank of these GPUs may plan with: the free memory of the fullest GPU, less a margin
// for what driver and libraries use themselves. Requires: GPUs.
int64_t PlannedBytes(const DeviceChoice& choice);

// Where the plugin is looked for: only in places of this project, since no wheel, toolkit or system
// folder contains it.
kernels::LibraryPlaces PluginPlaces(const std::string& named);
// Where NCCL and cuBLASLt are looked for.
kernels::LibraryPlaces NcclPlaces(const std::string& named, const std::string& search_path);
kernels::LibraryPlaces CublasLtPlaces(const std::string& named, const std::string& search_path);

}  // namespace quire
