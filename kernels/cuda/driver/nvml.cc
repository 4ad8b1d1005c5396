#include "kernels/cuda/driver/nvml.h"

#include <algorithm>
#include <cstdio>

#include "kernels/cuda/driver/driver_report.h"
#include "kernels/cuda/driver/nvml_abi.h"

namespace quire::kernels::cuda {

using nvml::Code;
using nvml::kSuccess;

namespace {

constexpr int kMaxFaultsAtOnce = 64;  // read in one look

}  // namespace

// The last ones, from `mig_parent` on, may be missing: their values are then unknown.
struct Nvml::Functions {
  Code (*init)() = nullptr;
  Code (*shutdown)() = nullptr;
  const char* (*error_string)(Code code) = nullptr;
  Code (*handle_by_uuid)(const char* uuid, nvml::Device* device) = nullptr;
  Code (*memory)(nvml::Device device, nvml::Memory* memory) = nullptr;
  Code (*count)(unsigned* count) = nullptr;
  Code (*handle_by_index)(unsigned index, nvml::Device* device) = nullptr;
  Code (*uuid)(nvml::Device device, char* uuid, unsigned bytes) = nullptr;
  Code (*name)(nvml::Device device, char* name, unsigned bytes) = nullptr;

  Code (*mig_parent)(nvml::Device slice, nvml::Device* device) = nullptr;
  Code (*power)(nvml::Device device, unsigned* milliwatts) = nullptr;
  Code (*clock)(nvml::Device device, unsigned kind, unsigned* mhz) = nullptr;
  Code (*temperature)(nvml::Device device, unsigned sensor, unsigned* celsius) = nullptr;
  Code (*throttle)(nvml::Device device, unsigned long long* reasons) = nullptr;
  Code (*ecc)(nvml::Device device, unsigned type, unsigned since,
              unsigned long long* count) = nullptr;
  Code (*event_set_create)(nvml::EventSet* set) = nullptr;
  Code (*event_set_free)(nvml::EventSet set) = nullptr;
  Code (*register_events)(nvml::Device device, unsigned long long types,
                          nvml::EventSet set) = nullptr;
  Code (*event_wait)(nvml::EventSet set, nvml::EventData* data, unsigned milliseconds) = nullptr;
};

// A device that has been read.
struct Nvml::Watched {
  nvml::Device own = nullptr;    // of the device, or of the slice
  nvml::Device whole = nullptr;  // of the device
  bool faults_told = false;
};

std::string Nvml::Resolve(const SharedLibrary& file) {
  Symbols symbols(file);
  symbols.Need("nvmlInit_v2", f_->init);
  symbols.Need("nvmlShutdown", f_->shutdown);
  symbols.Need("nvmlErrorString", f_->error_string);
  symbols.Need("nvmlDeviceGetHandleByUUID", f_->handle_by_uuid);
  symbols.Need("nvmlDeviceGetMemoryInfo", f_->memory);
  symbols.Need("nvmlDeviceGetCount_v2", f_->count);
  symbols.Need("nvmlDeviceGetHandleByIndex_v2", f_->handle_by_index);
  symbols.Need("nvmlDeviceGetUUID", f_->uuid);
  symbols.Need("nvmlDeviceGetName", f_->name);
  symbols.Take("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", f_->mig_parent);
  symbols.Take("nvmlDeviceGetPowerUsage", f_->power);
  symbols.Take("nvmlDeviceGetClockInfo", f_->clock);
  symbols.Take("nvmlDeviceGetTemperature", f_->temperature);
  if (!symbols.Take("nvmlDeviceGetCurrentClocksEventReasons", f_->throttle)) {
    symbols.Take("nvmlDeviceGetCurrentClocksThrottleReasons", f_->throttle);  // before driver 535
  }
  symbols.Take("nvmlDeviceGetTotalEccErrors", f_->ecc);
  const bool events = symbols.Take("nvmlEventSetCreate", f_->event_set_create) &&
                      symbols.Take("nvmlEventSetFree", f_->event_set_free) &&
                      symbols.Take("nvmlDeviceRegisterEvents", f_->register_events) &&
                      symbols.Take("nvmlEventSetWait_v2", f_->event_wait);
  if (!events) f_->event_set_create = nullptr;
  return symbols.Missing();
}

Nvml::Nvml() : f_(std::make_unique<Functions>()) {}

std::unique_ptr<Nvml> Nvml::Open(const LibraryPlaces& places, std::string& error) {
  std::unique_ptr<Nvml> opened(new Nvml);
  const auto check = [&opened](const SharedLibrary& file) { return opened->Resolve(file); };
  std::unique_ptr<SharedLibrary> file = FindLibrary(kNvmlName, places, check, error);
  if (file == nullptr) return nullptr;
  error = opened->Said("nvmlInit", opened->f_->init());
  if (!error.empty()) {
    error = file->path() + ": " + error;
    return nullptr;
  }
  opened->file_ = std::move(file);  // from here on it has to be shut down
  if (opened->f_->event_set_create != nullptr &&
      opened->f_->event_set_create(&opened->events_) != kSuccess) {
    opened->events_ = nullptr;
  }
  return opened;
}

Nvml::~Nvml() {
  if (file_ == nullptr) return;
  if (events_ != nullptr) f_->event_set_free(events_);
  f_->shutdown();
}

std::string Nvml::Said(const char* what, Code code) const {
  if (code == kSuccess) return {};
  const char* text = f_->error_string(code);
  return std::string(what) + " says " + (text != nullptr ? text : "an unknown error") + " (" +
         std::to_string(code) + ")";
}

std::vector<NvmlDevice> Nvml::Devices(std::string& error) const {
  std::vector<NvmlDevice> devices;
  unsigned count = 0;
  error = Said("nvmlDeviceGetCount", f_->count(&count));
  if (!error.empty()) return devices;
  for (unsigned i = 0; i < std::min<unsigned>(count, kMaxDriverDevices); ++i) {
    nvml::Device device = nullptr;
    char uuid[nvml::kUuidBytes] = {};
    char name[nvml::kNameBytes] = {};
    // One that the user may not see, or that has fallen off the bus.
    if (f_->handle_by_index(i, &device) != kSuccess) continue;
    if (f_->uuid(device, uuid, sizeof(uuid) - 1) != kSuccess) continue;
    f_->name(device, name, sizeof(name) - 1);
    devices.push_back({name, uuid});
  }
  return devices;
}

Nvml::Watched* Nvml::Find(const std::string& uuid, std::string& error) {
  if (const auto known = watched_.find(uuid); known != watched_.end()) return known->second.get();
  Watched found;
  Code code = kSuccess;
  const bool named = uuid.starts_with("GPU-") || uuid.starts_with("MIG-");
  for (const char* kind : {"GPU-", "MIG-"}) {
    code = f_->handle_by_uuid((named ? uuid : kind + uuid).c_str(), &found.own);
    if (code == kSuccess || named) break;
  }
  error = Said("nvmlDeviceGetHandleByUUID", code);
  if (!error.empty()) return nullptr;
  found.whole = found.own;
  nvml::Device parent = nullptr;
  // Fails for what is no slice.
  if (f_->mig_parent != nullptr && f_->mig_parent(found.own, &parent) == kSuccess) {
    found.whole = parent;
  }
  if (events_ != nullptr) {
    found.faults_told = f_->register_events(found.whole, nvml::kXidEvent, events_) == kSuccess;
  }
  return watched_.emplace(uuid, std::make_unique<Watched>(found)).first->second.get();
}

// Faults since the last look, of all devices that are read.
void Nvml::TakeFaults() {
  if (events_ == nullptr) return;
  nvml::EventData event = {};
  for (int i = 0; i < kMaxFaultsAtOnce && f_->event_wait(events_, &event, 0) == kSuccess; ++i) {
    if ((event.type & nvml::kXidEvent) == 0) continue;
    xids_[event.device] = static_cast<int64_t>(event.data);
  }
}

DeviceReading Nvml::Read(const std::string& uuid) {
  DeviceReading reading;
  const Watched* device = Find(uuid, reading.error);
  if (device == nullptr) return reading;
  nvml::Memory memory = {};
  const Code code = f_->memory(device->own, &memory);
  reading.error = Said("nvmlDeviceGetMemoryInfo", code);
  if (code == kSuccess) {
    reading.memory_total_bytes = static_cast<int64_t>(memory.total);
    reading.memory_used_bytes = static_cast<int64_t>(memory.used);
  }
  unsigned value = 0;
  unsigned long long wide = 0;
  const nvml::Device whole = device->whole;
  if (f_->power != nullptr && f_->power(whole, &value) == kSuccess) {
    reading.power_milliwatts = value;
  }
  if (f_->clock != nullptr && f_->clock(whole, nvml::kClockSm, &value) == kSuccess) {
    reading.sm_clock_mhz = value;
  }
  if (f_->clock != nullptr && f_->clock(whole, nvml::kClockMemory, &value) == kSuccess) {
    reading.memory_clock_mhz = value;
  }
  if (f_->temperature != nullptr &&
      f_->temperature(whole, nvml::kTemperatureOfGpu, &value) == kSuccess) {
    reading.temperature_celsius = value;
  }
  if (f_->throttle != nullptr && f_->throttle(whole, &wide) == kSuccess) {
    reading.throttle_reasons = static_cast<int64_t>(wide);
  }
  const auto ecc = [&](unsigned kind, int64_t& count) {
    if (f_->ecc == nullptr) return;
    if (f_->ecc(whole, kind, nvml::kSinceDriverLoad, &wide) == kSuccess) {
      count = static_cast<int64_t>(wide);
    }
  };
  ecc(nvml::kCorrected, reading.ecc_corrected);
  ecc(nvml::kUncorrected, reading.ecc_uncorrected);
  TakeFaults();
  if (device->faults_told) reading.xid = xids_[whole];
  return reading;
}

const char* ThrottleReasonName(ThrottleReason reason) {
  constexpr const char* kNames[kThrottleReasons] = {"power", "thermal", "hardware"};
  return kNames[static_cast<size_t>(reason)];
}

bool IsThrottled(const DeviceReading& reading, ThrottleReason reason) {
  constexpr unsigned long long kBits[kThrottleReasons] = {
      nvml::kThrottledByPowerCap | nvml::kThrottledByPowerBrake,
      nvml::kThrottledByHeatSoftware | nvml::kThrottledByHeatHardware, nvml::kThrottledByHardware};
  if (reading.throttle_reasons == kNotTold) return false;
  const auto told = static_cast<unsigned long long>(reading.throttle_reasons);
  return (told & kBits[static_cast<size_t>(reason)]) != 0;
}

namespace {

void Add(const std::string& part, std::string& text) {
  if (!text.empty() && !part.empty()) text += ", ";
  text += part;
}

}  // namespace

std::string FaultText(const DeviceReading& reading) {
  std::string text;
  if (reading.xid > 0) Add("XID " + std::to_string(reading.xid), text);
  if (reading.ecc_uncorrected > 0) {
    Add(std::to_string(reading.ecc_uncorrected) + " uncorrected ECC errors", text);
  }
  for (int i = 0; i < kThrottleReasons; ++i) {
    const auto reason = static_cast<ThrottleReason>(i);
    if (reason == ThrottleReason::kPower || !IsThrottled(reading, reason)) continue;
    Add(std::string("throttled by ") + ThrottleReasonName(reason), text);
  }
  Add(reading.error, text);
  return text;
}

std::string ReadingText(const DeviceReading& reading) {
  std::string text = FaultText(reading);
  if (reading.temperature_celsius != kNotTold) {
    Add(std::to_string(reading.temperature_celsius) + " C", text);
  }
  if (reading.power_milliwatts != kNotTold) {
    Add(std::to_string(reading.power_milliwatts / 1000) + " W", text);
  }
  if (IsThrottled(reading, ThrottleReason::kPower)) Add("throttled by power", text);
  if (reading.memory_total_bytes > 0) {
    constexpr double kGiB = 1 << 30;
    char memory[64];
    std::snprintf(memory, sizeof(memory), "%.1f of %.1f GiB in use",
                  static_cast<double>(reading.memory_used_bytes) / kGiB,
                  static_cast<double>(reading.memory_total_bytes) / kGiB);
    Add(memory, text);
  }
  return text;
}

}  // namespace quire::kernels::cuda
