// The part of NVML's interface that is used; tests/kernels/cuda/gate/nvml_abi.cu compares it with
// its header.
#pragma once

namespace quire::kernels::cuda::nvml {

using Code = int;
using Device = void*;
using EventSet = void*;
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct EventData {
  Device device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};

inline constexpr Code kSuccess = 0;
inline constexpr unsigned kClockSm = 1;
inline constexpr unsigned kClockMemory = 2;
inline constexpr unsigned kTemperatureOfGpu = 0;
inline constexpr unsigned kCorrected = 0;
inline constexpr unsigned kUncorrected = 1;
inline constexpr unsigned kSinceDriverLoad = 0;
inline constexpr unsigned long long kXidEvent = 0x8;
inline constexpr unsigned long long kThrottledByPowerCap = 0x4;
inline constexpr unsigned long long kThrottledByHardware = 0x8;
inline constexpr unsigned long long kThrottledByHeatSoftware = 0x20;
inline constexpr unsigned long long kThrottledByHeatHardware = 0x40;
inline constexpr unsigned long long kThrottledByPowerBrake = 0x80;
inline constexpr unsigned kUuidBytes = 96;
inline constexpr unsigned kNameBytes = 96;

}  // namespace quire::kernels::cuda::nvml
