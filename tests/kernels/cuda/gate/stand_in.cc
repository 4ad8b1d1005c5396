// The CUDA body of the runtime over functions that stand in for the API's: what it does when they
// fail, or never come to an end. Linked before the real library, whose other functions it keeps.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/runtime/runtime.h"

namespace {
int pinned = 0;      // blocks of host memory that are allocated
bool maps = false;   // whether they get an address on the device
int still_busy = 0;  // times that stream or event say so; −1: for ever
int major = 9;       // of the device's compute capability
bool early = false;  // whether the last kernel may begin before those in front of it have ended

cudaError_t Busy() {
  if (still_busy == 0) return cudaSuccess;
  if (still_busy > 0) --still_busy;
  return cudaErrorNotReady;
}
}  // namespace

// Time that passes with every look, so that no limit is waited for.
std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  static time_point time;
  return time += std::chrono::seconds(1);
}

extern "C" {
cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr of, int) {
  *value = of == cudaDevAttrComputeCapabilityMajor ? major : 1 << 20;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  early = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    early = early || (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                      config->attrs[i].val.programmaticStreamSerializationAllowed != 0);
  }
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaSetDevice(int) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaHostAlloc(void** host, size_t bytes, unsigned) {
  *host = malloc(bytes);
  ++pinned;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaFreeHost(void* host) {
  free(host);
  --pinned;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return maps ? cudaSuccess : cudaErrorNotSupported;
}
cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(8);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(8);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t) { return Busy(); }
cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t) { return Busy(); }
}

namespace quire::kernels::cuda::runtime {
namespace {

int wrong = 0;
void Expect(bool good, const char* what) {
  if (good) return;
  ++wrong;
  printf("not so: %s\n", what);
}

void TryMappedMemory(Runtime& runtime) {
  void* host = nullptr;
  void* device = nullptr;
  Expect(!runtime.AllocateMapped(64, &host, &device).empty(), "host memory without a place fails");
  Expect(pinned == 0, "and is given back");
  Expect(host == nullptr && device == nullptr, "and is not handed out");
  maps = true;
  Expect(runtime.AllocateMapped(64, &host, &device).empty(), "host memory with a place is had");
  Expect(host != nullptr && device != nullptr && pinned == 1, "and is handed out");
  Expect(runtime.FreeMapped(host).empty() && pinned == 0, "and is freed");
}

void TryWaits(Runtime& runtime) {
  StreamId stream{};
  EventId event{};
  Expect(runtime.CreateStream(&stream).empty(), "a stream is made");
  Expect(runtime.CreateEvent(&event).empty(), "an event is made");
  still_busy = 3;
  Expect(runtime.Synchronize(stream).empty() && still_busy == 0, "a stream's end is waited for");
  still_busy = 3;
  Expect(runtime.Synchronize(event).empty() && still_busy == 0, "an event is waited for");
  still_busy = -1;
  Expect(!runtime.Synchronize(stream).empty(), "a stream without an end is given up");
  Expect(!runtime.Synchronize(event).empty(), "an event that never happens is given up");
}

// From compute capability 9.0 on kernels begin early; an older device knows no such attribute.
void TryOverlap() {
  for (const int device : {8, 9, 12}) {
    major = device;
    Error error;
    const auto runtime = MakeCudaRuntime(0, error);
    Expect(runtime != nullptr, "a device is there");
    StreamId stream{};
    Expect(runtime->CreateStream(&stream).empty(), "it has a stream");
    Expect(runtime->Launch(stream, {"kernel", nullptr, 32}, {}).empty(), "a kernel is launched");
    Expect(early == (device >= 9), "it begins early where the device can");
  }
}

int Main() {
  Error error;
  const auto runtime = MakeCudaRuntime(0, error);
  if (runtime == nullptr) {
    printf("no runtime: %s\n", error.c_str());
    return 1;
  }
  TryMappedMemory(*runtime);
  TryWaits(*runtime);
  TryOverlap();
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace quire::kernels::cuda::runtime

int main() { return quire::kernels::cuda::runtime::Main(); }
