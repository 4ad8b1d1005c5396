// How a kernel is declared, and where its threads find themselves.
//
// A kernel file is compiled twice: by nvcc for the GPU, and by g++ as code that the emulated grid
// runs. It sees the hardware through this folder only.
//
//   QUIRE_KERNEL(quire_copy, CopyParams, /*threads=*/256, /*blocks_per_sm=*/2) { ... params.x ... }
//
// declares the kernel `quire_copy`, whose body reads `params` (const CopyParams&). Its name is that
// of its machine code and of its row in budget.csv. QUIRE_KERNEL_OF(quire_copy, 256) is the handle
// that runtime/ launches.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/kernel_handle.h"

#ifdef __CUDACC__
#define QUIRE_DEVICE __device__ __forceinline__
#define QUIRE_KERNEL(name, Params, threads, blocks_per_sm)             \
  extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm) \
      name(const __grid_constant__ Params params)
#else
#include "kernels/cuda/device/emulated_calls.h"
#define QUIRE_DEVICE [[gnu::always_inline]] inline
#define QUIRE_KERNEL(name, Params, threads, blocks_per_sm)                                       \
  static void name##_body(const Params& params);                                                 \
  extern "C" void name(const void* params) { name##_body(*static_cast<const Params*>(params)); } \
  static void name##_body(const Params& params)
#endif
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
#else
QUIRE_DEVICE int ThreadIndex() { return static_cast<int>(emulated::Here().thread); }
QUIRE_DEVICE int BlockThreads() { return static_cast<int>(emulated::Here().threads); }
QUIRE_DEVICE int BlockX() { return static_cast<int>(emulated::Here().block.x); }
QUIRE_DEVICE int BlockY() { return static_cast<int>(emulated::Here().block.y); }
QUIRE_DEVICE int BlockZ() { return static_cast<int>(emulated::Here().block.z); }
QUIRE_DEVICE int GridX() { return static_cast<int>(emulated::Here().grid.x); }
QUIRE_DEVICE int GridY() { return static_cast<int>(emulated::Here().grid.y); }
QUIRE_DEVICE int GridZ() { return static_cast<int>(emulated::Here().grid.z); }
#endif

QUIRE_DEVICE int Lane() { return ThreadIndex() % kWarpSize; }
QUIRE_DEVICE int WarpIndex() { return ThreadIndex() / kWarpSize; }

}  // namespace quire::kernels::cuda::device
