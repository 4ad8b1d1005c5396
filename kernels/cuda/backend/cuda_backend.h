// The backend that runs step programs on a CUDA device, or on an emulated one.
//
// Owned by a rank; one thread. It reaches the device through the Runtime it is given, which is the
// only thing that tells a GPU from the emulated grid.
#pragma once

#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

struct CudaOptions {
  // What tells devices apart whose results may differ in bits: "emulated", "sm_90".
  std::string architecture;
  std::string description;  // for the log
};

std::unique_ptr<Backend> MakeCudaBackend(std::unique_ptr<runtime::Runtime> runtime,
                                         const CudaOptions& options);

}  // namespace quire::kernels::cuda
