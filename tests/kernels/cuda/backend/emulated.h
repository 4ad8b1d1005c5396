// The emulated device as the tests of the backend use it.
#pragma once

#include <memory>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/emulate/emulated_runtime.h"

namespace quire::golden {

// It only computes: races and costs of the kernels are tested one by one.
inline std::unique_ptr<kernels::cuda::emulate::EmulatedRuntime> MakeEmulatedRuntime() {
  constexpr uint64_t kSeed = 7;
  return std::make_unique<kernels::cuda::emulate::EmulatedRuntime>(
      kSeed, kernels::cuda::emulate::Checks::kNone);
}
inline std::unique_ptr<kernels::Backend> MakeEmulatedBackendWith(bool graphs) {
  // What has to be warm on a GPU is not on this one: start-up runs nothing.
  return kernels::cuda::MakeCudaBackend(
      MakeEmulatedRuntime(),
      {"emulated", "emulated grid", {.graphs = graphs, .warm_up = false, .margin_bytes = 0}});
}
inline std::unique_ptr<kernels::Backend> MakeEmulatedBackend() {
  return MakeEmulatedBackendWith(true);
}

}  // namespace quire::golden
