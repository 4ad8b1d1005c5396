#include "kernels/cuda/backend/products.h"

#include <algorithm>

#include "kernels/cuda/ops/rows/encode_rows.h"

namespace quire::kernels::cuda {
namespace {

constexpr size_t kAlignment = 256;

int GroupsOf(const DeviceWeightPart& part, int cols) {
  return part.rounding.group == 0 ? 1 : (cols + kEncodeGroup - 1) / kEncodeGroup;
}

// Codes of m rows, and behind them their scales; the pieces of the product follow.
struct CodesPlace {
  size_t scales = 0;
  size_t end = 0;
};
CodesPlace PlaceOfCodes(const DeviceWeightPart& part, int m, int cols) {
  const auto aligned = [](size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  if (!IsByCodes(part.quantised.form)) return {};
  const size_t rows = static_cast<size_t>(m);
  const size_t scales = aligned(rows * static_cast<size_t>(cols));
  return {scales, aligned(scales + 4 * rows * static_cast<size_t>(GroupsOf(part, cols)))};
}

bool SameCodes(const ActivationRounding& a, const ActivationRounding& b) {
  return a.code == b.code && a.group == b.group && a.scale == b.scale;
}

// Points `params` at the codes of its rows. They are there already where the part before had the
// same.
runtime::Error Encode(runtime::Runtime& runtime, runtime::StreamId stream,
                      const DeviceWeightPart& part, bool there, GemmParams& params) {
  const CodesPlace place = PlaceOfCodes(part, params.m, params.k);
  auto* memory = reinterpret_cast<std::byte*>(params.workspace);
  EncodeRowsParams rows;
  rows.in = params.x;
  rows.codes = reinterpret_cast<uint8_t*>(memory);
  rows.scales = reinterpret_cast<float*>(memory + place.scales);
  rows.rows = params.m;
  rows.width = params.k;
  rows.half = params.half;
  rows.e4m3 = part.rounding.code == ActivationRounding::Code::kE4m3;
  rows.by_group = part.rounding.group != 0;
  rows.scale = part.rounding.scale;
  params.codes = rows.codes;
  params.code_scales = rows.scales;
  params.code_groups = GroupsOf(part, params.k);
  params.workspace = reinterpret_cast<float*>(memory + place.end);
  return there ? runtime::Error() : LaunchEncodeRows(runtime, stream, rows);
}

}  // namespace

ProductNeeds NeedsOfProduct(const DeviceWeight& weight, int m) {
  ProductNeeds needs;
  for (const DeviceWeightPart& part : weight.parts) {
    needs.bytes =
        std::max(needs.bytes, PlaceOfCodes(part, m, weight.cols).end +
                                  GemmWorkspaceBytes(m, part.rows, weight.cols, weight.rows));
    needs.counters = std::max(needs.counters, GemmCounters(m, part.rows));
  }
  return needs;
}

runtime::Error LaunchProduct(runtime::Runtime& runtime, runtime::StreamId stream,
                             const DeviceWeight& weight, const GemmParams& params,
                             cublaslt::FastProducts* fast) {
  const ActivationRounding* encoded = nullptr;
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
    if (IsByCodes(part.quantised.form) && params.m > 0) {
      const bool there = encoded != nullptr && SameCodes(*encoded, part.rounding);
      runtime::Error error = Encode(runtime, stream, part, there, own);
      if (!error.empty()) return error;
      encoded = &part.rounding;
    } else if (fast != nullptr && fast->Launch(own)) {
      continue;
    }
    runtime::Error error = LaunchGemm(runtime, stream, own);
    if (!error.empty()) return error;
  }
  return {};
}

}  // namespace quire::kernels::cuda
