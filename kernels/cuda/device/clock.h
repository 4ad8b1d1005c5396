// The device's own clock, for measurements in tests: nanoseconds since some moment, the same for
// the whole device. Its resolution depends on the device.
#pragma once

#include "kernels/cuda/device/kernel.h"
#ifndef __CUDACC__
#include <chrono>
#endif

namespace quire::kernels::cuda::device {

#ifdef __CUDACC__
QUIRE_DEVICE uint64_t Nanos() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;\n" : "=l"(now)::"memory");
  return now;
}
#else
QUIRE_DEVICE uint64_t Nanos() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}
#endif

}  // namespace quire::kernels::cuda::device
