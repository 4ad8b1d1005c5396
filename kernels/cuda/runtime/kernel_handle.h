// What a launch needs of a kernel: a name, an entry, the threads of a block.
#pragma once

namespace quire::kernels::cuda::runtime {

// `entry` is the __global__ function under nvcc, and a void(const void* params) under g++.
struct KernelHandle {
  const char* name;
  const void* entry;
  int threads;
};

}  // namespace quire::kernels::cuda::runtime
