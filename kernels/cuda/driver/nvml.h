// What NVML reports of GPUs while they compute: memory, power, clocks, faults. Its library comes
// with the driver and is opened on first use; a machine without it works without.
//
// One thread. Calls may take long, and where a driver hangs they do not return: callers use a
// thread that no other thread waits for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/libraries/shared_library.h"

namespace quire::kernels::cuda {

inline constexpr const char* kNvmlName = "libnvidia-ml.so.1";
inline constexpr int64_t kNotTold = -1;

// kNotTold where the device, its driver or this version of the library does not report the value.
// For a MIG slice the memory is its own, and everything else belongs to the whole device.
struct DeviceReading {
  int64_t memory_total_bytes = kNotTold;
  int64_t memory_used_bytes = kNotTold;  // by all processes, and by the driver itself
  int64_t power_milliwatts = kNotTold;
  int64_t sm_clock_mhz = kNotTold;
  int64_t memory_clock_mhz = kNotTold;
  int64_t temperature_celsius = kNotTold;
  int64_t throttle_reasons = kNotTold;  // NVML's bits
  int64_t ecc_corrected = kNotTold;     // since the driver was loaded
  int64_t ecc_uncorrected = kNotTold;
  int64_t xid = kNotTold;  // the newest fault's number since it was first read; 0: none
  std::string error;       // why there are no values
};

// Why clocks are held below what the device could do: the reasons that its user did not choose.
enum class ThrottleReason : int { kPower, kThermal, kHardware };
inline constexpr int kThrottleReasons = 3;
const char* ThrottleReasonName(ThrottleReason reason);
bool IsThrottled(const DeviceReading& reading, ThrottleReason reason);

// What is wrong with it, "XID 79, 2 uncorrected ECC errors, throttled by thermal"; empty: nothing.
// A device at its power cap may just be busy: that is a figure and not a fault.
std::string FaultText(const DeviceReading& reading);
// Faults and figures, "XID 79, 2 uncorrected ECC errors, throttled by thermal, 91 C, 310 W, 79.1 of
// 80.0 GiB in use"; unknown ones are left out.
std::string ReadingText(const DeviceReading& reading);

struct NvmlDevice {
  std::string name;
  std::string uuid;  // as NVML has it: "GPU-…"
};

class Nvml {
 public:
  // Null and one line: no library, one without the functions that are needed, or a driver that does
  // not answer it.
  static std::unique_ptr<Nvml> Open(const LibraryPlaces& places, std::string& error);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Those of the machine, at most kMaxDriverDevices; MIG slices are not among them. Empty with
  // `error` when they cannot be counted.
  std::vector<NvmlDevice> Devices(std::string& error) const;

  // `uuid`: the id of a device or a MIG slice, with NVML's "GPU-" or "MIG-" or without.
  DeviceReading Read(const std::string& uuid);

 private:
  struct Functions;
  struct Watched;
  Nvml();
  std::string Said(const char* what, int code) const;
  std::string Resolve(const SharedLibrary& file);  // what the library lacks, in a line
  // Null with `error`.
  Watched* Find(const std::string& uuid, std::string& error);
  void TakeFaults();

  std::unique_ptr<SharedLibrary> file_;
  std::unique_ptr<Functions> f_;
  std::map<std::string, std::unique_ptr<Watched>> watched_;  // by UUID
  std::map<void*, int64_t> xids_;                            // of whole devices, for all readers
  void* events_ = nullptr;                                   // null: faults are not reported
};

}  // namespace quire::kernels::cuda
