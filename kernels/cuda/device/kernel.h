// How a kernel is declared, and how its threads find their position.
//
// A kernel file is compiled twice: by nvcc for the GPU, and by g++ as code that the emulated grid
// runs. It sees the hardware through this folder only.
//
//   QUIRE_KERNEL(quire_copy, CopyParams, /*threads=*/256, /*blocks_per_sm=*/2) { ... params.x ... }
//
// declares the kernel `quire_copy`, whose body reads `params` (const CopyParams&). Its machine code
// and its row in budget.csv have the same name. QUIRE_KERNEL_OF(quire_copy, 256) is the handle that
// runtime/ launches.
//
// On devices of compute capability 9.0 and newer a kernel begins while the one before it in its
// stream still runs, and waits for it in code. QUIRE_KERNEL waits before the body. The body of a
// QUIRE_KERNEL_AHEAD calls WaitForEarlierKernels itself, in every thread: before it, it may read
// what no kernel writes, weights, and write nothing but shared memory. Because every kernel waits,
// what has ended before one begins its work is all that was launched before it.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/kernel_handle.h"

#ifdef __CUDACC__
#define QUIRE_DEVICE __device__ __forceinline__
#define QUIRE_KERNEL_AHEAD(name, Params, threads, blocks_per_sm)       \
  extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm) \
      name(const __grid_constant__ Params params)
#else
#include "kernels/cuda/device/emulated_calls.h"
#define QUIRE_DEVICE [[gnu::always_inline]] inline
#define QUIRE_KERNEL_AHEAD(name, Params, threads, blocks_per_sm)                                 \
  static void name##_body(const Params& params);                                                 \
  extern "C" void name(const void* params) { name##_body(*static_cast<const Params*>(params)); } \
  static void name##_body(const Params& params)
#endif
#define QUIRE_KERNEL(name, Params, threads, blocks_per_sm)       \
  QUIRE_DEVICE static void name##_in_turn(const Params& params); \
  QUIRE_KERNEL_AHEAD(name, Params, threads, blocks_per_sm) {     \
    ::quire::kernels::cuda::device::WaitForEarlierKernels();     \
    ::quire::kernels::cuda::device::LetLaterKernelsBegin();      \
    name##_in_turn(params);                                      \
  }                                                              \
  QUIRE_DEVICE static void name##_in_turn(const Params& params)
#define QUIRE_KERNEL_OF(name, threads)                     \
  ::quire::kernels::cuda::runtime::KernelHandle {          \
#name, reinterpret_cast < const void*>(&name), threads \
  }

namespace quire::kernels::cuda::device {

inline constexpr int kWarpSize = 32;

#ifdef __CUDACC__
QUIRE_DEVICE int ThreadIndex() { return static_cast<int>(threadIdx.x); }
QUIRE_DEVICE int BlockThreads() { return static_cast<int>(blockDim.x); }
QUIRE_DEVICE int BlockX() { return static_cast<int>(blockIdx.x); }
QUIRE_DEVICE int BlockY() { return static_cast<int>(blockIdx.y); }
QUIRE_DEVICE int BlockZ() { return static_cast<int>(blockIdx.z); }
QUIRE_DEVICE int GridX() { return static_cast<int>(gridDim.x); }
QUIRE_DEVICE int GridY() { return static_cast<int>(gridDim.y); }
QUIRE_DEVICE int GridZ() { return static_cast<int>(gridDim.z); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// Waits until the kernels that were launched before have ended and all their writes are visible.
QUIRE_DEVICE void WaitForEarlierKernels() { asm volatile("griddepcontrol.wait;\n" ::: "memory"); }
// When all blocks have called this, or ended, the next kernel may begin, up to its own wait.
QUIRE_DEVICE void LetLaterKernelsBegin() {
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}
#else  // kernels follow each other
QUIRE_DEVICE void WaitForEarlierKernels() {}
QUIRE_DEVICE void LetLaterKernelsBegin() {}
#endif
#else
QUIRE_DEVICE int ThreadIndex() { return static_cast<int>(emulated::Here().thread); }
QUIRE_DEVICE int BlockThreads() { return static_cast<int>(emulated::Here().threads); }
QUIRE_DEVICE int BlockX() { return static_cast<int>(emulated::Here().block.x); }
QUIRE_DEVICE int BlockY() { return static_cast<int>(emulated::Here().block.y); }
QUIRE_DEVICE int BlockZ() { return static_cast<int>(emulated::Here().block.z); }
QUIRE_DEVICE int GridX() { return static_cast<int>(emulated::Here().grid.x); }
QUIRE_DEVICE int GridY() { return static_cast<int>(emulated::Here().grid.y); }
QUIRE_DEVICE int GridZ() { return static_cast<int>(emulated::Here().grid.z); }
QUIRE_DEVICE void WaitForEarlierKernels() { emulated::WaitForEarlierKernels(); }
QUIRE_DEVICE void LetLaterKernelsBegin() {}  // they are always as early as they may be
#endif

QUIRE_DEVICE int Lane() { return ThreadIndex() % kWarpSize; }
QUIRE_DEVICE int WarpIndex() { return ThreadIndex() / kWarpSize; }

}  // namespace quire::kernels::cuda::device
