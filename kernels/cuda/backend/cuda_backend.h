// The backend that runs step programs on a CUDA device, or on an emulated one.
//
// Owned by a rank; one thread. It reaches the device through its Runtime, which is the only
// difference between a GPU and the emulated grid.
#pragma once

#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/cuda/cublaslt/cublaslt_library.h"
#include "kernels/cuda/nccl/nccl_library.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// What is done when a program is loaded.
struct StartOptions {
  bool graphs = true;  // steps that only decode are captured, in a handful of sizes
  // One run of each shape before anything is captured: it does the work that a device or its
  // libraries postpone until a kernel's first launch.
  bool warm_up = true;
  // The part of the memory that pages leave free after everything else: drivers and libraries may
  // need some later.
  int64_t margin_bytes = int64_t{256} << 20;
};

struct CudaOptions {
  // Separates devices whose results may differ in bits: "emulated", "sm_90".
  std::string architecture;
  std::string description;  // for the log
  StartOptions start;
  // Joins several ranks; shared by the backend and the code that opened it. Null: they meet in the
  // host memory of their communicator.
  std::shared_ptr<const nccl::Library> nccl = nullptr;
  // Multiplies where it is faster, which ends batch invariance; owned in the same way. Null: only
  // our own kernels.
  std::shared_ptr<const cublaslt::Library> cublaslt = nullptr;
};

// Why no backend can be made of the device, in one line; empty: one can.
std::string DeviceRefusal(const runtime::Runtime& runtime);

std::unique_ptr<Backend> MakeCudaBackend(std::unique_ptr<runtime::Runtime> runtime,
                                         const CudaOptions& options);

}  // namespace quire::kernels::cuda
