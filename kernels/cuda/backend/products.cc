#include "kernels/cuda/backend/products.h"

#include <algorithm>

namespace quire::kernels::cuda {

ProductNeeds NeedsOfProduct(const DeviceWeight& weight, int m) {
  ProductNeeds needs;
  for (const DeviceWeightPart& part : weight.parts) {
    needs.bytes = std::max(needs.bytes, GemmWorkspaceBytes(m, part.rows, weight.cols, weight.rows));
    needs.counters = std::max(needs.counters, GemmCounters(m, part.rows));
  }
  return needs;
}

runtime::Error LaunchProduct(runtime::Runtime& runtime, runtime::StreamId stream,
                             const DeviceWeight& weight, const GemmParams& params,
                             cublaslt::FastProducts* fast) {
  for (const DeviceWeightPart& part : weight.parts) {
    GemmParams own = params;
    own.weight = part.data;
    own.quantised = part.quantised;
    own.n = part.rows;
    own.whole_n = weight.rows;
    own.k = weight.cols;
    own.half = weight.half;
    if (own.out_stride == 0) own.out_stride = weight.rows;
    if (own.bias != nullptr) own.bias += part.first_row;
    own.out = static_cast<std::byte*>(own.out) + part.first_row * (own.out_float32 ? 4 : 2);
    if (fast != nullptr && fast->Launch(own)) continue;
    runtime::Error error = LaunchGemm(runtime, stream, own);
    if (!error.empty()) return error;
  }
  return {};
}

}  // namespace quire::kernels::cuda
