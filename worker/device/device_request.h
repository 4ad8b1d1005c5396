// The devices that a worker computes on: compares what --device requests with what is present.
//
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "kernels/cuda/driver/driver_report.h"

namespace quire {

struct DeviceRequest {
  enum class Kind : uint8_t { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;
  // For cuda: indices ("0") or UUIDs in lower case, in the order of ranks; empty: the first ones
  // present.
  std::vector<std::string> names;
};

// "auto", "cpu", "cuda", "cuda:1", "cuda:0,1", "cuda:GPU-0c2d…". INVALID_ARGUMENT names the flag.
absl::StatusOr<DeviceRequest> ParseDevice(std::string_view text);

// Whether the request may mean `device`.
bool IsWanted(const DeviceRequest& request, const kernels::cuda::DriverDevice& device);

struct DeviceNeeds {
  int ranks = 1;
  int toolkit_version = 13000;             // what the plugin was built with
  int oldest_major = 8;                    // compute capability
  int64_t least_bytes = int64_t{1} << 30;  // free memory below which no model is worth trying
};

// The devices of the ranks, in their order. Errors in one line: what was found, what is needed,
// what to set. INVALID_ARGUMENT (exit code 2) where the count of ranks does not fit what is
// present, UNAVAILABLE (4) for a fault of devices or driver.
absl::StatusOr<std::vector<kernels::cuda::DriverDevice>> ChooseDevices(
    const DeviceRequest& request, const DeviceNeeds& needs,
    const kernels::cuda::DriverReport& report);

// "0 (NVIDIA H200, 80.2 of 139.8 GiB free)", for errors and the log.
std::string DeviceText(const kernels::cuda::DriverDevice& device);

}  // namespace quire
