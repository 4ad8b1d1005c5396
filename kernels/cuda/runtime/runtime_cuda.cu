// The CUDA body of the runtime. The only host code of the tree that calls the CUDA runtime API.
#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda::runtime {
namespace {

// Far above what any step or start takes: a device that hangs, or waits for a peer that does.
constexpr std::chrono::seconds kWaitLimit(120);

// `what` failed, and why; empty when it did not.
Error Said(const char* what, cudaError_t code) {
  if (code == cudaSuccess) return {};
  return std::string(what) + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")";
}

// The driver's functions for ranges of addresses, which the CUDA runtime API has none of. They are
// asked for by name, so that nothing links the driver's library.
struct RangeCalls {
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuGetErrorString) error_string = nullptr;

  Error Find() {
    if (error_string != nullptr) return {};
    Error error = Find("cuMemGetAllocationGranularity", granularity);
    if (error.empty()) error = Find("cuMemAddressReserve", reserve);
    if (error.empty()) error = Find("cuMemAddressFree", free);
    if (error.empty()) error = Find("cuMemCreate", create);
    if (error.empty()) error = Find("cuMemRelease", release);
    if (error.empty()) error = Find("cuMemMap", map);
    if (error.empty()) error = Find("cuMemUnmap", unmap);
    if (error.empty()) error = Find("cuMemSetAccess", set_access);
    if (error.empty()) error = Find("cuGetErrorString", error_string);
    return error;
  }
  Error Said(const char* what, CUresult code) const {
    if (code == CUDA_SUCCESS) return {};
    const char* text = nullptr;
    error_string(code, &text);
    return std::string(what) + ": " + (text != nullptr ? text : "unknown") + " (" +
           std::to_string(static_cast<int>(code)) + ")";
  }

 private:
  template <class Function>
  static Error Find(const char* name, Function& function) {
    constexpr unsigned kSince = 12000;  // the interface as CUDA 12.0 had it
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    Error error = quire::kernels::cuda::runtime::Said(
        name, cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &result));
    if (!error.empty()) return error;
    if (found == nullptr || result != cudaDriverEntryPointSuccess) {
      return std::string("the driver has no ") + name;
    }
    function = reinterpret_cast<Function>(found);
    return {};
  }
};

class CudaRuntime final : public Runtime {
 public:
  CudaRuntime(int device, bool overlaps, uint32_t shared_bytes)
      : device_(device), overlaps_(overlaps), shared_bytes_(shared_bytes) {}
  ~CudaRuntime() override {
    while (!ranges_.empty()) FreeRange(ranges_.begin()->first);
    for (const auto& [id, graph] : graphs_) cudaGraphExecDestroy(graph);
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }

  Error Allocate(size_t bytes, void** device) override {
    *device = nullptr;
    return Said("allocate device memory", cudaMalloc(device, bytes));
  }
  Error Free(void* device) override { return Said("free device memory", cudaFree(device)); }

  Error AllocateMapped(size_t bytes, void** host, void** device) override {
    *host = *device = nullptr;
    Error error = Said("allocate mapped memory", cudaHostAlloc(host, bytes, cudaHostAllocMapped));
    if (!error.empty()) return error;
    error = Said("map host memory", cudaHostGetDevicePointer(device, *host, 0));
    if (error.empty()) return {};
    cudaFreeHost(*host);
    *host = *device = nullptr;
    return error;
  }
  Error FreeMapped(void* host) override { return Said("free mapped memory", cudaFreeHost(host)); }

  uint32_t SharedBytesPerBlock() const override { return shared_bytes_; }
  Error MemoryInfo(size_t* free, size_t* total) override {
    return Said("ask for free memory", cudaMemGetInfo(free, total));
  }
  Error RangeGranularity(size_t* bytes) override {
    if (Error error = calls_.Find(); !error.empty()) return error;
    const CUmemAllocationProp kind = Kind();
    return calls_.Said("ask for the granularity of memory",
                       calls_.granularity(bytes, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  }
  Error ReserveRange(size_t bytes, void** range) override {
    *range = nullptr;
    if (Error error = calls_.Find(); !error.empty()) return error;
    CUdeviceptr at = 0;
    Error error = calls_.Said("reserve device addresses", calls_.reserve(&at, bytes, 0, 0, 0));
    if (!error.empty()) return error;
    *range = reinterpret_cast<void*>(at);
    ranges_[*range].bytes = bytes;
    return {};
  }
  Error MapRange(void* range, size_t offset, size_t bytes) override {
    const auto found = ranges_.find(range);
    if (found == ranges_.end() || offset > found->second.bytes ||
        bytes > found->second.bytes - offset) {
      return "map device memory: outside the range";
    }
    const CUmemAllocationProp kind = Kind();
    CUmemGenericAllocationHandle handle = 0;
    Error error = calls_.Said("take device memory", calls_.create(&handle, bytes, &kind, 0));
    if (!error.empty()) return error;
    const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(range) + offset;
    error = calls_.Said("map device memory", calls_.map(at, bytes, 0, handle, 0));
    calls_.release(handle);  // the mapping keeps it
    if (!error.empty()) return error;
    found->second.mapped.emplace_back(at, bytes);
    CUmemAccessDesc access = {};
    access.location = kind.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return calls_.Said("map device memory", calls_.set_access(at, bytes, &access, 1));
  }
  Error FreeRange(void* range) override {
    const auto found = ranges_.find(range);
    if (found == ranges_.end()) return "free device addresses: no such range";
    const Range gone = std::move(found->second);
    ranges_.erase(found);
    Error error;
    for (const auto& [at, bytes] : gone.mapped) {
      Error said = calls_.Said("free device memory", calls_.unmap(at, bytes));
      if (error.empty()) error = std::move(said);
    }
    Error said = calls_.Said("free device addresses",
                             calls_.free(reinterpret_cast<CUdeviceptr>(range), gone.bytes));
    return error.empty() ? said : error;
  }

  Error CreateStream(StreamId* stream) override {
    cudaStream_t made = nullptr;
    Error error = Said("create stream", cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    if (!error.empty()) return error;
    *stream = StreamId{static_cast<uint32_t>(streams_.size())};
    streams_.push_back(made);
    return {};
  }
  void* NativeStream(StreamId stream) override {
    const size_t at = static_cast<size_t>(stream);
    return at < streams_.size() ? streams_[at] : nullptr;
  }
  Error CreateEvent(EventId* event) override {
    cudaEvent_t made = nullptr;
    Error error = Said("create event", cudaEventCreateWithFlags(
                                           &made, cudaEventDisableTiming | cudaEventBlockingSync));
    if (!error.empty()) return error;
    return Keep(made, event);
  }
  Error CreateTimedEvent(EventId* event) override {
    cudaEvent_t made = nullptr;
    Error error = Said("create event", cudaEventCreateWithFlags(&made, cudaEventBlockingSync));
    return error.empty() ? Keep(made, event) : error;
  }
  Error Elapsed(EventId from, EventId to, double* seconds) override {
    float milliseconds = 0.0f;
    Error error = Said("read events", cudaEventElapsedTime(&milliseconds, At(from), At(to)));
    *seconds = milliseconds * 1e-3;
    return error;
  }
  Error DestroyEvent(EventId event) override {
    cudaEvent_t& gone = events_.at(static_cast<size_t>(event));
    Error error = Said("destroy event", cudaEventDestroy(gone));
    gone = nullptr;
    return error;
  }

  Error Record(EventId event, StreamId stream) override {
    return Said("record event", cudaEventRecord(At(event), At(stream)));
  }
  Error Wait(StreamId stream, EventId event) override {
    return Said("wait for event", cudaStreamWaitEvent(At(stream), At(event), 0));
  }
  Error Query(EventId event, bool* done) override {
    const cudaError_t code = cudaEventQuery(At(event));
    *done = code == cudaSuccess;
    return code == cudaErrorNotReady ? Error() : Said("query event", code);
  }
  Error Synchronize(EventId event) override {
    return Await("wait for event", [at = At(event)] { return cudaEventQuery(at); });
  }
  Error Synchronize(StreamId stream) override {
    return Await("wait for stream", [at = At(stream)] { return cudaStreamQuery(at); });
  }

  Error Copy(StreamId stream, void* to, const void* from, size_t bytes) override {
    return Said("copy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, At(stream)));
  }
  Error Fill(StreamId stream, void* to, uint8_t byte, size_t bytes) override {
    return Said("fill", cudaMemsetAsync(to, byte, bytes, At(stream)));
  }

  Error Launch(StreamId stream, const KernelHandle& kernel, const LaunchShape& shape) override {
    if (shape.params_bytes > kMaxParamsBytes) return "launch: parameters above 4096 bytes";
    if (Error error = AllowShared(kernel, shape.shared_bytes); !error.empty()) return error;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(shape.grid_x, shape.grid_y, shape.grid_z);
    config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = At(stream);
    // It may begin when all blocks of the kernel before it have let it, and waits in its own code.
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &early;
    config.numAttrs = overlaps_ ? 1 : 0;
    void* args[] = {const_cast<void*>(shape.params)};
    return Said(kernel.name, cudaLaunchKernelExC(&config, kernel.entry, args));
  }

  Error BeginCapture(StreamId stream) override {
    return Said("begin capture",
                cudaStreamBeginCapture(At(stream), cudaStreamCaptureModeThreadLocal));
  }
  Error EndCapture(StreamId stream, GraphId* graph) override {
    cudaGraph_t captured = nullptr;
    Error error = Said("end capture", cudaStreamEndCapture(At(stream), &captured));
    if (!error.empty()) return error;
    cudaGraphExec_t made = nullptr;
    error = Said("instantiate graph", cudaGraphInstantiate(&made, captured, 0));
    cudaGraphDestroy(captured);
    if (!error.empty()) return error;
    *graph = GraphId{next_graph_};
    graphs_[next_graph_++] = made;
    // What it needs on the device it takes now, not with its first launch.
    return Said("upload graph", cudaGraphUpload(made, At(stream)));
  }
  Error LaunchGraph(GraphId graph, StreamId stream) override {
    const auto found = graphs_.find(static_cast<uint32_t>(graph));
    if (found == graphs_.end()) return "launch: no such graph";
    return Said("launch graph", cudaGraphLaunch(found->second, At(stream)));
  }
  Error DestroyGraph(GraphId graph) override {
    const auto found = graphs_.find(static_cast<uint32_t>(graph));
    if (found == graphs_.end()) return "destroy: no such graph";
    const cudaGraphExec_t gone = found->second;
    graphs_.erase(found);
    return Said("destroy graph", cudaGraphExecDestroy(gone));
  }

 private:
  Error Keep(cudaEvent_t made, EventId* event) {
    *event = EventId{static_cast<uint32_t>(events_.size())};
    events_.push_back(made);
    return {};
  }
  cudaStream_t At(StreamId id) const { return streams_.at(static_cast<size_t>(id)); }
  cudaEvent_t At(EventId id) const { return events_.at(static_cast<size_t>(id)); }

  // Spins for a moment, then sleeps between looks: the API's own waits have no end where the device
  // has none.
  template <class Query>
  Error Await(const char* what, Query query) const {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::microseconds kSpin(20), kSleep(20);
    const Clock::time_point begin = Clock::now();
    for (;;) {
      const cudaError_t code = query();
      if (code != cudaErrorNotReady) return Said(what, code);
      const auto waited = Clock::now() - begin;
      if (waited >= kWaitLimit) {
        return std::string(what) + ": the device has not ended its work in " +
               std::to_string(kWaitLimit.count()) + " s";
      }
      if (waited > kSpin) std::this_thread::sleep_for(kSleep);
    }
  }

  // Above 48 KiB a kernel must be allowed its shared memory, once.
  Error AllowShared(const KernelHandle& kernel, uint32_t bytes) {
    uint32_t& allowed = allowed_shared_[kernel.entry];
    if (bytes <= (48u << 10) || bytes <= allowed) return {};
    Error error = Said(
        kernel.name, cudaFuncSetAttribute(kernel.entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(bytes)));
    if (error.empty()) allowed = bytes;
    return error;
  }

  CUmemAllocationProp Kind() const {
    CUmemAllocationProp kind = {};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    kind.location.id = device_;
    return kind;
  }

  struct Range {
    size_t bytes = 0;
    std::vector<std::pair<CUdeviceptr, size_t>> mapped;
  };
  const int device_;
  const bool overlaps_;  // kernels begin before those in front of them have ended
  const uint32_t shared_bytes_;
  RangeCalls calls_;
  std::map<void*, Range> ranges_;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::map<uint32_t, cudaGraphExec_t> graphs_;
  std::map<const void*, uint32_t> allowed_shared_;
  uint32_t next_graph_ = 1;
};

}  // namespace

std::unique_ptr<Runtime> MakeCudaRuntime(int device, Error& error) {
  int count = 0;
  error = Said("look for CUDA devices", cudaGetDeviceCount(&count));
  if (!error.empty()) return nullptr;
  if (device < 0 || device >= count) {
    error = "CUDA device " + std::to_string(device) + ": the driver shows " +
            std::to_string(count) + " (0 … " + std::to_string(count - 1) + ")";
    return nullptr;
  }
  int major = 0;
  error = Said("read compute capability",
               cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (!error.empty()) return nullptr;
  if (major < 8) {
    error = "CUDA device " + std::to_string(device) + " has compute capability " +
            std::to_string(major) + ".x; 8.0 or newer is needed";
    return nullptr;
  }
  int shared = 0;
  error = Said("read shared memory of a block",
               cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  if (!error.empty()) return nullptr;
  error = Said("take the CUDA device", cudaSetDevice(device));
  if (!error.empty()) return nullptr;
  return std::make_unique<CudaRuntime>(device, /*overlaps=*/major >= 9,
                                       static_cast<uint32_t>(shared));
}

}  // namespace quire::kernels::cuda::runtime
