// A device that is linked into the program, beside those that --device finds: quire-worker has
// none; the worker of the tests has the emulated one, in place of linked_device.cc.
//
// Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/backend.h"

namespace quire {

// Libraries that a linked device uses, by their files; empty: there is none of that kind.
struct LinkedLibraries {
  std::string nccl;      // joins ranks; without it they meet in host memory
  std::string cublaslt;  // multiplies where it is faster
};

struct LinkedDevice {
  int64_t memory_bytes = 0;  // memory that a rank has on its device
  std::string uuid;          // its name in NVML
  // Returns another device for each call: each rank has its own. Null with `error` in one line.
  std::unique_ptr<kernels::Backend> (*open)(const LinkedLibraries& libraries,
                                            std::string& error) = nullptr;
};

// Null: `device`, as --device gives it, is not a linked one.
const LinkedDevice* FindLinkedDevice(std::string_view device);

}  // namespace quire
