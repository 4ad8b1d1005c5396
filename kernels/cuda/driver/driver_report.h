// What the CUDA driver reports of this machine's devices: queried through the driver's own library,
// which is opened for it, so that nothing of the toolkit is needed.
//
// Blocking, any thread; the first call in a process initialises the driver there, which takes time
// and memory: a worker runs it in a process that ends with the answer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::kernels::cuda {

struct DriverDevice {
  int index = 0;             // as the driver counts, after CUDA_VISIBLE_DEVICES
  std::string name;          // "NVIDIA H200"
  std::string uuid;          // 32 hexadecimal digits in five groups, of a device or of a MIG slice
  int major = 0, minor = 0;  // compute capability
  bool prohibited = false;   // no process may compute on it
  int64_t total_bytes = 0;
  // For devices that were opened: their free memory, or why they could not be opened.
  bool opened = false;
  int64_t free_bytes = 0;
  std::string open_error;
};

struct DriverReport {
  // Why the driver cannot be used, in one line; empty: it can.
  std::string error;
  int version = 0;  // of the newest CUDA that it serves: 13000 is 13.0; 0: not known
  std::vector<DriverDevice> devices;
};

inline constexpr int kMaxDriverDevices = 64;

// Which devices to open, to learn their free memory; the first `most` of those.
struct DriverQuestion {
  std::function<bool(const DriverDevice&)> wanted;
  int most = 1;
};

// `library`: the driver's, "libcuda.so.1" for the loader's own search.
DriverReport AskDriver(const std::string& library, const DriverQuestion& question);

// 13000 → "13.0".
std::string CudaVersionText(int version);

}  // namespace quire::kernels::cuda
