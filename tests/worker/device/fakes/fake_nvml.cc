// A library that stands in for NVML: one whole device, "GPU-" and the UUID of zeros, and one slice
// of it, "MIG-" and the UUID of ones. What it says is told by the variable FAKE_NVML: words like
// power=310000, parted by blanks, read again at each call.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

#include "kernels/cuda/driver/nvml_abi.h"

namespace {

using quire::kernels::cuda::nvml::Device;
using quire::kernels::cuda::nvml::EventData;  // NOLINT(misc-unused-using-decls): of some
using quire::kernels::cuda::nvml::EventSet;
using quire::kernels::cuda::nvml::Memory;

constexpr int kNotFound = 6;
[[maybe_unused]] constexpr int kTimeout = 10;
constexpr int kLost = 15;
constexpr const char* kWhole = "GPU-00000000-0000-0000-0000-000000000000";
constexpr const char* kSlice = "MIG-11111111-1111-1111-1111-111111111111";

int whole = 0;
int slice = 0;
[[maybe_unused]] long faults_told = 0;
std::atomic<int> reads = 0;  // of memory, which begin a look
std::atomic<int> hangs = 0;  // threads that do not come back

long Told(const char* word, long otherwise) {
  const char* all = std::getenv("FAKE_NVML");
  if (all == nullptr) return otherwise;
  const std::string text = " " + std::string(all);
  const size_t at = text.find(" " + std::string(word) + "=");
  if (at == std::string::npos) return otherwise;
  return std::strtol(text.c_str() + at + std::strlen(word) + 2, nullptr, 10);
}

void Hang() {
  ++hangs;
  while (true) pause();
}

int Lost() {
  if (Told("hang", 0) != 0) Hang();
  return Told("lost", 0) != 0 ? kLost : 0;
}

// What only whole devices tell.
[[maybe_unused]] int OfWhole(const Device device, const char* word, long otherwise,
                             unsigned* value) {
  if (device != &whole) return kNotFound;
  if (Lost() != 0) return kLost;
  *value = static_cast<unsigned>(Told(word, otherwise));
  return 0;
}

}  // namespace

extern "C" {

int fake_nvml_reads() { return reads; }
int fake_nvml_hangs() { return hangs; }

int nvmlInit_v2() {
  if (Told("hang_init", 0) != 0) Hang();
  return static_cast<int>(Told("init", 0));
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) {
  return code == kLost ? "GPU is lost" : code == kNotFound ? "Not Found" : "Unknown Error";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Told("count", 1));
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = &whole;
  return index == 0 ? 0 : kLost;
}
int nvmlDeviceGetUUID(Device, char* uuid, unsigned bytes) {
  strncpy(uuid, kWhole, bytes);
  return 0;
}
int nvmlDeviceGetName(Device, char* name, unsigned bytes) {
  strncpy(name, "Paper 9000", bytes);
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  *device = strcmp(uuid, kWhole) == 0 ? &whole : strcmp(uuid, kSlice) == 0 ? &slice : nullptr;
  return *device == nullptr ? kNotFound : 0;
}
int nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  const int read = ++reads;
  usleep(static_cast<useconds_t>(1000 * Told("slow_ms", 0)));
  if (Lost() != 0) return kLost;
  memory->total = device == &slice ? 10ull << 30 : 80ull << 30;
  const long used_mib = Told("used_is_reads", 0) != 0 ? 1024L * read : Told("used_mib", 1024);
  memory->used = static_cast<unsigned long long>(used_mib) << 20;
  memory->free = memory->total - memory->used;
  return 0;
}
#ifndef FAKE_NVML_WITH_LITTLE
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device of, Device* device) {
  *device = &whole;
  return of == &slice ? 0 : kNotFound;
}
int nvmlDeviceGetPowerUsage(Device device, unsigned* milliwatts) {
  return OfWhole(device, "power", 310500, milliwatts);
}
int nvmlDeviceGetClockInfo(Device device, unsigned kind, unsigned* mhz) {
  return OfWhole(device, kind == 1 ? "sm" : "memory", kind == 1 ? 1980 : 3201, mhz);
}
int nvmlDeviceGetTemperature(Device device, unsigned, unsigned* celsius) {
  return OfWhole(device, "temperature", 41, celsius);
}
int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long* reasons) {
  unsigned value = 0;
  const int code = OfWhole(device, "reasons", 1, &value);
  *reasons = value;
  return code;
}
int nvmlDeviceGetTotalEccErrors(Device device, unsigned type, unsigned since,
                                unsigned long long* count) {
  unsigned value = 0;
  const int code = OfWhole(device, type == 0 ? "corrected" : "uncorrected", 0, &value);
  *count = value;
  return since == 0 ? code : kNotFound;
}
int nvmlEventSetCreate(EventSet* set) {
  *set = &faults_told;
  return 0;
}
int nvmlEventSetFree(EventSet) { return 0; }
int nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet) {
  return device == &whole && types == 8 ? 0 : kNotFound;
}
int nvmlEventSetWait_v2(EventSet, EventData* data, unsigned) {
  const long xid = Told("xid", 0);
  if (xid == faults_told) return kTimeout;
  faults_told = xid;
  *data = {&whole, 8, static_cast<unsigned long long>(xid), ~0u, ~0u};
  return 0;
}
#endif
}
