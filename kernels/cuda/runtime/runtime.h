// Streams, events, graphs, memory, copies and launches: everything that host code uses of a device.
//
// Two implementations: runtime_cuda.cu, and the emulated one in kernels/cuda/emulate, whose streams
// run late and interleaved as far as events permit. A Runtime is owned by one rank and called from
// one thread.
//
// 1. Work of one stream runs in order; work of two streams is ordered by events only. A kernel
//    that follows another directly may begin before that one has ended, also in a graph: it waits
//    in its own code (device/kernel.h), and every kernel does.
// 2. Nothing has happened, not even a copy out of host memory, before a Synchronize that covers it
//    has returned, or Query has reported it. Host memory that a copy names must live, unchanged,
//    until then.
// 3. Between BeginCapture and EndCapture the stream's calls, and those of streams that wait for an
//    event recorded in it, are recorded and not run. A graph keeps copies of kernel parameters.
// 4. Every call returns an empty Error on success; otherwise what failed, and why, in one line. A
//    later call reports a launch that fails on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "kernels/cuda/runtime/kernel_handle.h"

namespace quire::kernels::cuda::runtime {

using Error = std::string;

enum class StreamId : uint32_t {};
enum class EventId : uint32_t {};
enum class GraphId : uint32_t {};

struct LaunchShape {
  uint32_t grid_x = 1;
  uint32_t grid_y = 1;
  uint32_t grid_z = 1;
  uint32_t shared_bytes = 0;
  // Parameters: a trivially copyable struct, copied by the call.
  const void* params = nullptr;
  size_t params_bytes = 0;
};

inline constexpr size_t kMaxParamsBytes = 4096;
// Shared memory of a block on the smallest devices that are served (compute capability 8.6, 8.9 and
// 12.0; 8.0 has 163 KiB, 9.0 and 10.0 have 227): every kernel has a form that fits it.
inline constexpr uint32_t kLeastSharedBytes = 99u << 10;

class Runtime {
 public:
  virtual ~Runtime() = default;

  // Device memory, aligned to 256 bytes.
  virtual Error Allocate(size_t bytes, void** device) = 0;
  virtual Error Free(void* device) = 0;
  // Host memory that both sides address: what a kernel or copy wrote there may be read by the host
  // after an event that follows it.
  virtual Error AllocateMapped(size_t bytes, void** host, void** device) = 0;
  virtual Error FreeMapped(void* host) = 0;

  // The most shared memory that a block may have, constant.
  virtual uint32_t SharedBytesPerBlock() const = 0;
  // Bytes of the device, including those that other processes use.
  virtual Error MemoryInfo(size_t* free, size_t* total) = 0;
  // A range of device addresses without memory. MapRange puts memory under parts of it, in
  // multiples of the granularity from the range's begin on; FreeRange releases both.
  virtual Error RangeGranularity(size_t* bytes) = 0;
  virtual Error ReserveRange(size_t bytes, void** range) = 0;
  virtual Error MapRange(void* range, size_t offset, size_t bytes) = 0;
  virtual Error FreeRange(void* range) = 0;

  virtual Error CreateStream(StreamId* stream) = 0;
  // The stream in the form that other libraries use: a cudaStream_t. Null for one that does not
  // exist.
  virtual void* NativeStream(StreamId stream) = 0;
  // A wait for an event sleeps; Query does not wait.
  virtual Error CreateEvent(EventId* event) = 0;
  // An event whose Records note the device's time. Elapsed: seconds between the last Records of two
  // of these, once a Synchronize has covered both.
  virtual Error CreateTimedEvent(EventId* event) = 0;
  virtual Error Elapsed(EventId from, EventId to, double* seconds) = 0;
  virtual Error DestroyEvent(EventId event) = 0;
  virtual Error Record(EventId event, StreamId stream) = 0;
  // Later work of `stream` runs after the work that the event's last Record covers.
  virtual Error Wait(StreamId stream, EventId event) = 0;
  virtual Error Query(EventId event, bool* done) = 0;
  virtual Error Synchronize(EventId event) = 0;
  virtual Error Synchronize(StreamId stream) = 0;

  // Between any two of host and device memory.
  virtual Error Copy(StreamId stream, void* to, const void* from, size_t bytes) = 0;
  virtual Error Fill(StreamId stream, void* to, uint8_t byte, size_t bytes) = 0;
  virtual Error Launch(StreamId stream, const KernelHandle& kernel, const LaunchShape& shape) = 0;

  virtual Error BeginCapture(StreamId stream) = 0;
  virtual Error EndCapture(StreamId stream, GraphId* graph) = 0;
  virtual Error LaunchGraph(GraphId graph, StreamId stream) = 0;
  virtual Error DestroyGraph(GraphId graph) = 0;
};

// Parameters as LaunchShape names them.
template <class Params>
LaunchShape ShapeOf(uint32_t grid_x, uint32_t grid_y, uint32_t shared_bytes, const Params& params) {
  static_assert(sizeof(Params) <= kMaxParamsBytes);
  static_assert(std::is_trivially_copyable_v<Params>);
  LaunchShape shape;
  shape.grid_x = grid_x;
  shape.grid_y = grid_y;
  shape.shared_bytes = shared_bytes;
  shape.params = &params;
  shape.params_bytes = sizeof(Params);
  return shape;
}

// The CUDA implementation for one device (by index); null and an explanation when there is none.
// Defined only where the toolkit was present at build time.
std::unique_ptr<Runtime> MakeCudaRuntime(int device, Error& error);

}  // namespace quire::kernels::cuda::runtime
