// A library that stands in for the CUDA driver. What it shows is told by the variable FAKE_CUDA:
// words like count=2, parted by blanks.
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

namespace {

long Told(const char* word, long otherwise) {
  const char* all = std::getenv("FAKE_CUDA");
  if (all == nullptr) return otherwise;
  const std::string text = " " + std::string(all);
  const size_t at = text.find(" " + std::string(word) + "=");
  if (at == std::string::npos) return otherwise;
  return std::strtol(text.c_str() + at + std::strlen(word) + 2, nullptr, 10);
}

constexpr size_t kGiB = size_t{1} << 30;

}  // namespace

extern "C" {

int cuInit(unsigned) {
  if (Told("hang", 0) != 0) pause();
  if (Told("crash", 0) != 0) abort();
  return static_cast<int>(Told("init", 0));
}
int cuDriverGetVersion(int* version) {
  *version = static_cast<int>(Told("version", 13000));
  return 0;
}
int cuGetErrorName(int code, const char** name) {
  *name = code == 46    ? "CUDA_ERROR_DEVICE_UNAVAILABLE"
          : code == 100 ? "CUDA_ERROR_NO_DEVICE"
                        : nullptr;
  return *name == nullptr ? 1 : 0;
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(Told("count", 1));
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index + 7;  // a handle is no index
  return 0;
}
int cuDeviceGetName(char* name, int bytes, int) {
  strncpy(name, "Paper 9000", static_cast<size_t>(bytes));
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(16 * (device - 7) + i);
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  if (attribute == 75) *value = static_cast<int>(Told("major", 9));
  if (attribute == 76) *value = 0;
  if (attribute == 20) *value = static_cast<int>(Told("mode", 0));
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = 80 * kGiB;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = nullptr;
  return static_cast<int>(Told("retain", 0));
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void*) { return 0; }
#ifndef FAKE_CUDA_WITHOUT_MEMORY
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *total = 80 * kGiB;
  *free = static_cast<size_t>(Told("free_mib", 79 * 1024)) << 20;
  return 0;
}
#endif
}
