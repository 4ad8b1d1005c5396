// A product with a weight in its form on the device: one launch for each of its parts, with the
// bits of one launch with all of its rows.
#pragma once

#include <cstddef>

#include "kernels/cuda/backend/device_weights.h"
#include "kernels/cuda/cublaslt/fast_products.h"
#include "kernels/cuda/ops/gemm/gemm.h"

namespace quire::kernels::cuda {

// The required sizes of GemmParams::workspace and counters for products of m rows.
struct ProductNeeds {
  size_t bytes = 0;
  size_t counters = 0;
};
ProductNeeds NeedsOfProduct(const DeviceWeight& weight, int m);

// `params` without weight, n, whole_n and k. Rows of the result are rows of the weight. `fast`
// computes the products that it may and that it is faster at; null: none.
runtime::Error LaunchProduct(runtime::Runtime& runtime, runtime::StreamId stream,
                             const DeviceWeight& weight, const GemmParams& params,
                             cublaslt::FastProducts* fast);

}  // namespace quire::kernels::cuda
