// A device that is part of the program itself, beside those that --device finds: quire-worker has
// none, the worker of the tests has the emulated one in the place of linked_device.cc.
//
// Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/backend.h"

namespace quire {

struct LinkedDevice {
  int64_t memory_bytes = 0;  // that a rank has on its device
  // Another device for each call: a rank's own. `nccl_library` is the file that joins ranks; empty:
  // they meet in host memory. Null with `error` in one line.
  std::unique_ptr<kernels::Backend> (*open)(const std::string& nccl_library,
                                            std::string& error) = nullptr;
};

// Null: `device`, as --device has it, is none that is linked.
const LinkedDevice* FindLinkedDevice(std::string_view device);

}  // namespace quire
