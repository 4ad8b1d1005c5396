// The emulated device as the tests of the backend use it.
#pragma once

#include <memory>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/emulate/emulated_runtime.h"

namespace quire::golden {

// It only computes: races and costs of the kernels are tested one by one.
inline std::unique_ptr<kernels::Backend> MakeEmulatedBackend() {
  constexpr uint64_t kSeed = 7;
  return kernels::cuda::MakeCudaBackend(std::make_unique<kernels::cuda::emulate::EmulatedRuntime>(
                                            kSeed, kernels::cuda::emulate::Checks::kNone),
                                        {"emulated", "emulated grid"});
}

}  // namespace quire::golden
