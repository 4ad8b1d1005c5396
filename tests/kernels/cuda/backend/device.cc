#include "tests/kernels/cuda/backend/device.h"

#include "tests/kernels/cuda/backend/emulated.h"

namespace quire::golden {

std::unique_ptr<kernels::Backend> MakeDeviceBackend() { return MakeEmulatedBackend(); }

std::unique_ptr<kernels::cuda::runtime::Runtime> MakeDeviceRuntime() {
  return MakeEmulatedRuntime();
}
bool DeviceIsReal() { return false; }

}  // namespace quire::golden
