// libquire_cuda.so itself: the table over the CUDA body of the runtime and the backend. Compiled by
// nvcc for the plugin alone (kernels/cuda/toolchain/plugin.py), which brings CUDART_VERSION and
// __CUDA_ARCH_LIST__.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/plugin/plugin_table.h"
#include "kernels/cuda/runtime/runtime.h"
#include "quire_build_id.h"

namespace quire::kernels::cuda {
namespace {

constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};  // 800 is 8.0, ascending

// Machine code runs on devices of its own major number, from its own minor one on.
bool IsServed(int major, int minor) {
  for (const int architecture : kArchitectures) {
    if (architecture / 100 == major && architecture % 100 / 10 <= minor) return true;
  }
  return false;
}

std::string Text(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string NotServed(int major, int minor) {
  std::string all;
  for (const int architecture : kArchitectures) {
    all += (all.empty() ? "" : ", ") + Text(architecture / 100, architecture % 100 / 10);
  }
  return "it has compute capability " + Text(major, minor) + ", this plugin machine code for " +
         all + "; build it with ./dev cuda --all-arch";
}

// Why there is no backend; empty: there is one.
std::string Make(const QuireCudaRequest& request, std::unique_ptr<Backend>& backend) {
  if (!IsServed(request.major, request.minor)) return NotServed(request.major, request.minor);
  std::unique_ptr<runtime::Runtime> runtime;
  if (request.device >= 0) {
    runtime::Error error;
    runtime = runtime::MakeCudaRuntime(request.device, error);
    if (runtime == nullptr) return error;
    if (error = DeviceRefusal(*runtime); !error.empty()) return error;
  }
  CudaOptions options;
  options.architecture = "sm_" + std::to_string(10 * request.major + request.minor);
  options.description = request.description;
  if (*request.nccl_library != '\0') {
    LibraryPlaces places;
    places.named = request.nccl_library;
    std::string error;
    options.nccl = nccl::Library::Open(places, error);
    if (options.nccl == nullptr) return error;
  }
  if (*request.cublaslt_library != '\0') {
    LibraryPlaces places;
    places.named = request.cublaslt_library;
    std::string error;
    options.cublaslt = cublaslt::Library::Open(places, error);
    if (options.cublaslt == nullptr) return error;
  }
  backend = MakeCudaBackend(std::move(runtime), options);
  return {};
}

int32_t Open(const QuireCudaRequest* request, void** backend, char* text, size_t text_bytes) {
  *backend = nullptr;
  if (request->device < -1) {
    std::snprintf(text, text_bytes, "no device has index %d", request->device);
    return kQuireCudaBadArgument;
  }
  std::unique_ptr<Backend> made;
  std::string error;
  try {
    error = Make(*request, made);
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  if (made == nullptr) {
    std::snprintf(text, text_bytes, "%s", error.c_str());
    return kQuireCudaNoDevice;
  }
  *backend = made.release();
  return kQuireCudaGood;
}

void Close(void* backend) { delete static_cast<Backend*>(backend); }

constexpr QuireCudaTable kTable = {
    kQuireCudaTableVersion, kQuireBuildId, CUDART_VERSION, kArchitectures[0] / 100, Open, Close,
};

}  // namespace
}  // namespace quire::kernels::cuda

extern "C" __attribute__((visibility("default"))) const QuireCudaTable* quire_cuda_table() {
  return &quire::kernels::cuda::kTable;
}
