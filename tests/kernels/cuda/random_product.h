// A product to measure: [m, k] random rows by [n, k] random weights, both bfloat16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/ops/gemm/gemm.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {

// All that it names is the bed's.
inline GemmParams RandomProduct(DeviceBed& bed, int m, int n, int k) {
  GemmParams params;
  params.x = bed.Put(RandomBf16(static_cast<size_t>(m) * k, 1));
  params.weight = bed.Put(RandomBf16(static_cast<size_t>(n) * k, 2));
  params.out = bed.New<uint16_t>(static_cast<size_t>(m) * n);
  params.m = m;
  params.n = n;
  params.k = k;
  params.workspace = bed.New<float>(GemmWorkspaceBytes(m, n, k) / sizeof(float));
  params.counters = bed.Put(std::vector<uint32_t>(GemmCounters(m, n), 0));
  return params;
}

}  // namespace quire::kernels::cuda::test
