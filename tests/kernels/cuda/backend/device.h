// The device as those tests of the backend use it that also run on a GPU: emulated (device.cc), or
// real, in the binary of ./dev gpu (../on_device).
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace quire::golden {

// Each rank of a test has its own.
std::unique_ptr<kernels::Backend> MakeDeviceBackend();

}  // namespace quire::golden
