#include "kernels/cuda/driver/driver_report.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "kernels/libraries/shared_library.h"

namespace quire::kernels::cuda {
namespace {

// The driver's interface, whose values do not change.
using Code = int;
using Device = int;
struct Uuid {
  unsigned char bytes[16];
};
struct Context;
constexpr Code kSuccess = 0;
constexpr int kAttributeComputeMode = 20;
constexpr int kAttributeMajor = 75;
constexpr int kAttributeMinor = 76;
constexpr int kComputeModeProhibited = 2;

struct Functions {
  Code (*init)(unsigned flags) = nullptr;
  Code (*driver_version)(int* version) = nullptr;
  Code (*error_name)(Code code, const char** name) = nullptr;
  Code (*device_count)(int* count) = nullptr;
  Code (*device_get)(Device* device, int index) = nullptr;
  Code (*device_name)(char* name, int bytes, Device device) = nullptr;
  Code (*device_uuid)(Uuid* uuid, Device device) = nullptr;
  Code (*device_attribute)(int* value, int attribute, Device device) = nullptr;
  Code (*device_total)(size_t* bytes, Device device) = nullptr;
  Code (*context_retain)(Context** context, Device device) = nullptr;
  Code (*context_release)(Device device) = nullptr;
  Code (*context_set)(Context* context) = nullptr;
  Code (*memory_info)(size_t* free, size_t* total) = nullptr;
};

// What the driver lacks, in a line.
std::string Resolve(const SharedLibrary& file, Functions& f) {
  Symbols symbols(file);
  symbols.Need("cuInit", f.init);
  symbols.Need("cuDriverGetVersion", f.driver_version);
  symbols.Need("cuGetErrorName", f.error_name);
  symbols.Need("cuDeviceGetCount", f.device_count);
  symbols.Need("cuDeviceGet", f.device_get);
  symbols.Need("cuDeviceGetName", f.device_name);
  symbols.Need("cuDeviceGetUuid_v2", f.device_uuid);
  symbols.Need("cuDeviceGetAttribute", f.device_attribute);
  symbols.Need("cuDeviceTotalMem_v2", f.device_total);
  symbols.Need("cuDevicePrimaryCtxRetain", f.context_retain);
  symbols.Need("cuDevicePrimaryCtxRelease_v2", f.context_release);
  symbols.Need("cuCtxSetCurrent", f.context_set);
  symbols.Need("cuMemGetInfo_v2", f.memory_info);
  return symbols.Missing();
}

class Driver {
 public:
  explicit Driver(const Functions& functions) : f_(functions) {}

  std::string Said(const char* what, Code code) const {
    if (code == kSuccess) return {};
    const char* name = nullptr;
    if (f_.error_name(code, &name) != kSuccess || name == nullptr) name = "an unknown error";
    return std::string(what) + " says " + name + " (" + std::to_string(code) + ")";
  }

  std::string Describe(int index, DriverDevice& described) const {
    Device device = 0;
    described.index = index;
    std::string error = Said("cuDeviceGet", f_.device_get(&device, index));
    if (!error.empty()) return error;
    char name[256] = {};
    error = Said("cuDeviceGetName", f_.device_name(name, sizeof(name) - 1, device));
    if (!error.empty()) return error;
    described.name = name;
    Uuid uuid = {};
    error = Said("cuDeviceGetUuid", f_.device_uuid(&uuid, device));
    if (!error.empty()) return error;
    described.uuid = UuidText(uuid);
    int mode = 0;
    const std::pair<int, int*> attributes[] = {{kAttributeMajor, &described.major},
                                               {kAttributeMinor, &described.minor},
                                               {kAttributeComputeMode, &mode}};
    for (const auto& [attribute, value] : attributes) {
      error = Said("cuDeviceGetAttribute", f_.device_attribute(value, attribute, device));
      if (!error.empty()) return error;
    }
    described.prohibited = mode == kComputeModeProhibited;
    size_t bytes = 0;
    error = Said("cuDeviceTotalMem", f_.device_total(&bytes, device));
    described.total_bytes = static_cast<int64_t>(bytes);
    return error;
  }

  // A context is what a worker would have too: if it cannot be had, the device is busy or broken.
  void Open(DriverDevice& device) const {
    Device handle = 0;
    Context* context = nullptr;
    device.open_error = Said("cuDeviceGet", f_.device_get(&handle, device.index));
    if (!device.open_error.empty()) return;
    device.open_error = Said("cuDevicePrimaryCtxRetain", f_.context_retain(&context, handle));
    if (!device.open_error.empty()) return;
    size_t free = 0, total = 0;
    device.open_error = Said("cuCtxSetCurrent", f_.context_set(context));
    if (device.open_error.empty()) {
      device.open_error = Said("cuMemGetInfo", f_.memory_info(&free, &total));
    }
    device.free_bytes = static_cast<int64_t>(free);
    device.opened = device.open_error.empty();
    f_.context_release(handle);
  }

 private:
  static std::string UuidText(const Uuid& uuid) {
    std::string text;
    for (int i = 0; i < 16; ++i) {
      char digits[3];
      std::snprintf(digits, sizeof(digits), "%02x", uuid.bytes[i]);
      text += digits;
      if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
    }
    return text;
  }

  const Functions& f_;
};

}  // namespace

DriverReport AskDriver(const std::string& library, const DriverQuestion& question) {
  DriverReport report;
  std::string error;
  const std::unique_ptr<SharedLibrary> file = OpenLibraryFile(library, error);
  if (file == nullptr) {
    report.error = library + ": " + error;
    return report;
  }
  Functions functions;
  if (const std::string missing = Resolve(*file, functions); !missing.empty()) {
    report.error = library + ": " + missing;
    return report;
  }
  const Driver driver(functions);
  // Even a driver without devices reports it.
  functions.driver_version(&report.version);
  report.error = driver.Said("cuInit", functions.init(0));
  if (!report.error.empty()) return report;
  int count = 0;
  report.error = driver.Said("cuDeviceGetCount", functions.device_count(&count));
  if (!report.error.empty()) return report;
  int open = 0;
  for (int i = 0; i < std::clamp(count, 0, kMaxDriverDevices); ++i) {
    DriverDevice& device = report.devices.emplace_back();
    report.error = driver.Describe(i, device);
    if (!report.error.empty()) return report;
    if (device.prohibited || open == question.most || !question.wanted(device)) continue;
    ++open;
    driver.Open(device);
  }
  return report;
}

std::string CudaVersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace quire::kernels::cuda
