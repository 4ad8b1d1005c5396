#include "tests/kernels/cuda/backend/device.h"

#include "tests/kernels/cuda/backend/emulated.h"

namespace quire::golden {

std::unique_ptr<kernels::Backend> MakeDeviceBackend() { return MakeEmulatedBackend(); }

}  // namespace quire::golden
