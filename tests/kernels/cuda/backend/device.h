// The device as those tests of the backend use it that also run on a GPU: emulated (device.cc), or
// real, in the binary of ./dev gpu (../on_device).
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::golden {

// Each rank of a test has its own.
std::unique_ptr<kernels::Backend> MakeDeviceBackend();

// The device below a backend, for a test that puts something in between; and whether it is real, so
// that times mean something.
std::unique_ptr<kernels::cuda::runtime::Runtime> MakeDeviceRuntime();
bool DeviceIsReal();

}  // namespace quire::golden
