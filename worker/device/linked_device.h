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

// Libraries that a linked device uses, by their files; empty: none of that kind.
struct LinkedLibraries {
  std::string nccl;      // joins ranks; without it they meet in host memory
  std::string cublaslt;  // multiplies where it is faster
};

struct LinkedDevice {
  int64_t memory_bytes = 0;  // that a rank has on its device
  std::string uuid;          // what NVML knows it by
  // Another device for each call: a rank's own. Null with `error` in one line.
  std::unique_ptr<kernels::Backend> (*open)(const LinkedLibraries& libraries,
                                            std::string& error) = nullptr;
};

// Null: `device`, as --device has it, is none that is linked.
const LinkedDevice* FindLinkedDevice(std::string_view device);

}  // namespace quire
