// The device of quire-worker-emulated: `--device cuda-emulated` is the CUDA worker on the emulated
// grid, which only computes; races and costs of the kernels are tested one by one.
#include "worker/device/linked_device.h"

#include <cstdlib>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/emulate/emulated_runtime.h"

namespace quire {
namespace {

// Of the 1 GiB of addresses that an emulated device reserves: mapped memory has its place there.
constexpr int64_t kMemoryBytes = int64_t{768} << 20;

// Only what is named: the machine's own libraries would not know what to do with these devices.
std::unique_ptr<kernels::Backend> Open(const LinkedLibraries& libraries, std::string& error) {
  constexpr uint64_t kSeed = 11;
  kernels::cuda::CudaOptions options;
  options.architecture = "emulated";
  options.description = "emulated grid";
  // A run of each shape first would take the emulated grid minutes.
  options.start = {.warm_up = false, .margin_bytes = 0};
  kernels::LibraryPlaces places;
  if (!libraries.nccl.empty()) {
    places.named = libraries.nccl;
    options.nccl = kernels::cuda::nccl::Library::Open(places, error);
    if (options.nccl == nullptr) return nullptr;
  }
  if (!libraries.cublaslt.empty()) {
    places.named = libraries.cublaslt;
    options.cublaslt = kernels::cuda::cublaslt::Library::Open(places, error);
    if (options.cublaslt == nullptr) return nullptr;
  }
  auto runtime = std::make_unique<kernels::cuda::emulate::EmulatedRuntime>(
      kSeed, kernels::cuda::emulate::Checks::kNone);
  if (const char* bytes = std::getenv("QUIRE_EMULATED_SHARED_BYTES")) {
    runtime->LimitShared(static_cast<uint32_t>(std::atoi(bytes)));
  }
  error = kernels::cuda::DeviceRefusal(*runtime);
  if (!error.empty()) return nullptr;
  return kernels::cuda::MakeCudaBackend(std::move(runtime), options);
}

// As the library that stands in for NVML has it.
const LinkedDevice kEmulated{kMemoryBytes, "00000000-0000-0000-0000-000000000000", Open};

}  // namespace

const LinkedDevice* FindLinkedDevice(std::string_view device) {
  return device == "cuda-emulated" ? &kEmulated : nullptr;
}

}  // namespace quire
