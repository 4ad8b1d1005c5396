// The device of quire-worker-emulated: `--device cuda-emulated` is the CUDA worker on the emulated
// grid, which only computes; races and costs of the kernels are tested one by one.
#include "worker/device/linked_device.h"

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/emulate/emulated_runtime.h"

namespace quire {
namespace {

// Of the 1 GiB of addresses that an emulated device reserves: mapped memory has its place there.
constexpr int64_t kMemoryBytes = int64_t{768} << 20;

std::unique_ptr<kernels::Backend> Open() {
  constexpr uint64_t kSeed = 11;
  // A run of each shape first would take the emulated grid minutes.
  return kernels::cuda::MakeCudaBackend(
      std::make_unique<kernels::cuda::emulate::EmulatedRuntime>(
          kSeed, kernels::cuda::emulate::Checks::kNone),
      {"emulated", "emulated grid", {.warm_up = false, .margin_bytes = 0}});
}

constexpr LinkedDevice kEmulated{kMemoryBytes, Open};

}  // namespace

const LinkedDevice* FindLinkedDevice(std::string_view device) {
  return device == "cuda-emulated" ? &kEmulated : nullptr;
}

}  // namespace quire
