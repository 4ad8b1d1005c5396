// Small kernels of which each has a right and a wrong form: what the emulated grid must find.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda::test {

struct PlantedParams {
  const float* in = nullptr;
  float* out = nullptr;
  float* partial = nullptr;
  uint32_t* counter = nullptr;
  const uint16_t* matrix = nullptr;  // bfloat16 [16][16]
  const int32_t* pages = nullptr;    // block table
  int length = 0;
};

inline constexpr int kPlantedThreads = 128;
inline constexpr int kPlantedPage = 16;   // slots
inline constexpr int kPlantedBlocks = 6;  // of the merge
inline constexpr int kPlantedSharedBytes = 8192;

// A kernel's right and wrong form.
struct Planted {
  const char* what;
  runtime::KernelHandle right;
  runtime::KernelHandle wrong;
  // What its out must be; every form is run with the same inputs.
  void (*expected)(const PlantedParams& params, float* out);
  int outputs;
  int blocks;
};

// kPlanted, and its count.
const Planted* AllPlanted(int* count);

// Kernels in a row. kWriter: partial = 2 · in + out; the others wait for it, or should, and copy
// partial to out.
enum class Follower {
  kWriter,
  kRight,        // waits after it has read what no kernel writes
  kReadsEarly,   // what the writer writes
  kWritesEarly,  // what the writer reads
  kNeverWaits,
};
runtime::KernelHandle InARow(Follower kind);

// A matrix load whose rows lie in one group of banks, and one that spreads them: not wrong, slow.
runtime::KernelHandle ConflictingLoads();
runtime::KernelHandle SpreadLoads();

}  // namespace quire::kernels::cuda::test
