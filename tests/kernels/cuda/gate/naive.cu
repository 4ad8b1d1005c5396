// Kernels that the gate must refuse: one spills, one keeps an array in local memory.
#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"

namespace quire::kernels::cuda::test {

using namespace device;  // NOLINT: a kernel file's vocabulary

struct NaiveParams {
  const float* in;
  float* out;
  const int* order;
};

// 32 registers for each of 1024 threads, and 96 values alive at once.
QUIRE_KERNEL(gate_spills, NaiveParams, 1024, 2) {
  float held[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) held[i] = params.in[i * 1024 + ThreadIndex()];
#pragma unroll
  for (int round = 0; round < 4; ++round) {
#pragma unroll
    for (int i = 0; i < 96; ++i) held[i] = Fma(held[i], held[(i * 7 + round) % 96], held[95 - i]);
  }
#pragma unroll
  for (int i = 0; i < 96; ++i) params.out[i * 1024 + ThreadIndex()] = held[i];
}

// An index that is known only when it runs.
QUIRE_KERNEL(gate_stack, NaiveParams, 128, 1) {
  float held[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) held[i] = params.in[i * 128 + ThreadIndex()];
  for (int i = 0; i < 32; ++i) held[params.order[i]] = held[params.order[31 - i]] + 1.0f;
  params.out[ThreadIndex()] = held[params.order[ThreadIndex()]];
}

}  // namespace quire::kernels::cuda::test
