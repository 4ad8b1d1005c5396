// Our own declarations of NVML held against its header: every value, place and type of them.
#include <nvml.h>

#include <cstddef>
#include <type_traits>

#include "kernels/cuda/driver/nvml_abi.h"

namespace abi = quire::kernels::cuda::nvml;

static_assert(abi::kSuccess == NVML_SUCCESS && sizeof(abi::Code) == sizeof(nvmlReturn_t));
static_assert(abi::kClockSm == NVML_CLOCK_SM && abi::kClockMemory == NVML_CLOCK_MEM);
static_assert(abi::kTemperatureOfGpu == NVML_TEMPERATURE_GPU);
static_assert(abi::kCorrected == NVML_MEMORY_ERROR_TYPE_CORRECTED &&
              abi::kUncorrected == NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
static_assert(abi::kSinceDriverLoad == NVML_VOLATILE_ECC);
static_assert(abi::kXidEvent == nvmlEventTypeXidCriticalError);
static_assert(abi::kThrottledByPowerCap == nvmlClocksEventReasonSwPowerCap);
static_assert(abi::kThrottledByHardware == nvmlClocksThrottleReasonHwSlowdown);
static_assert(abi::kThrottledByHeatSoftware == nvmlClocksEventReasonSwThermalSlowdown);
static_assert(abi::kThrottledByHeatHardware == nvmlClocksThrottleReasonHwThermalSlowdown);
static_assert(abi::kThrottledByPowerBrake == nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
static_assert(abi::kUuidBytes == NVML_DEVICE_UUID_V2_BUFFER_SIZE &&
              abi::kNameBytes == NVML_DEVICE_NAME_V2_BUFFER_SIZE);
static_assert(sizeof(nvmlDevice_t) == sizeof(abi::Device));
static_assert(sizeof(nvmlEventSet_t) == sizeof(abi::EventSet));

#define SAME_PLACE(Ours, ours, Theirs, theirs) \
  static_assert(offsetof(abi::Ours, ours) == offsetof(Theirs, theirs))
static_assert(sizeof(abi::Memory) == sizeof(nvmlMemory_t));
SAME_PLACE(Memory, total, nvmlMemory_t, total);
SAME_PLACE(Memory, free, nvmlMemory_t, free);
SAME_PLACE(Memory, used, nvmlMemory_t, used);
static_assert(sizeof(abi::EventData) == sizeof(nvmlEventData_t));
SAME_PLACE(EventData, device, nvmlEventData_t, device);
SAME_PLACE(EventData, type, nvmlEventData_t, eventType);
SAME_PLACE(EventData, data, nvmlEventData_t, eventData);
SAME_PLACE(EventData, gpu_instance, nvmlEventData_t, gpuInstanceId);
SAME_PLACE(EventData, compute_instance, nvmlEventData_t, computeInstanceId);
