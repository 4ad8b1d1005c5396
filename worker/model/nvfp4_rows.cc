#include "worker/model/nvfp4_rows.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/gguf_blocks.h"
#include "kernels/grouped_blocks.h"
#include "worker/load/group_scales.h"

namespace quire::model {

using kernels::DType;

const load::Tensor* OuterScaleOf(const load::TensorTable& tensors, const load::Tensor& matrix) {
  if (matrix.type != DType::kNVFP4 || !absl::EndsWith(matrix.name, ".weight")) return nullptr;
  return tensors.Find(absl::StrCat(absl::StripSuffix(matrix.name, ".weight"), ".scale"));
}

absl::StatusOr<float> ReadOuterScale(const load::Tensor& scale, const load::Tensor& matrix,
                                     int expert) {
  const int64_t count = matrix.shape.size() > 2 ? matrix.shape[0] : 1;
  if (scale.type != DType::kF32 || scale.shape != std::vector<int64_t>{count}) {
    return absl::InvalidArgumentError(absl::StrCat(
        scale.file, ": tensor \"", scale.name, "\" has type ", scale.type_name, " and shape ",
        scale.ShapeText(), ", the matrix \"", matrix.name, "\" demands F32 and [", count, "]"));
  }
  const float value = load::FloatElement(scale, count == 1 ? 0 : std::max(expert, 0));
  if (std::isfinite(value)) return value;
  return absl::InvalidArgumentError(absl::StrCat(scale.file, ": tensor \"", scale.name, "\" holds ",
                                                 value, ", it must be a finite number"));
}

void WriteScaledNvfp4Rows(const kernels::WeightSource& from, float scale, int64_t first,
                          int64_t count, std::byte* to) {
  constexpr int kGroups = kernels::BlockElements(DType::kNVFP4) / kernels::gguf::kGroup;
  for (int64_t row = first; row < first + count; ++row) {
    const std::byte* block = from.Row(row);
    for (int64_t col = 0; col < from.cols; col += kernels::BlockElements(DType::kNVFP4)) {
      for (int group = 0; group < kGroups; ++group) {
        for (int half = 0; half < 2; ++half) {
          const uint8_t code = kernels::gguf::Nvfp4Scale(block, 2 * group + half);
          kernels::grouped::PutHead(DType::kF4_16, kernels::grouped::E4m3(code) * scale, 0,
                                    to + 4 * half);
        }
        uint8_t codes[kernels::gguf::kGroup];
        kernels::gguf::ReadNvfp4Codes(block, group, codes);
        kernels::grouped::PutNibbles(DType::kF4_16, to, 0, codes);
        to += kernels::BlockBytes(DType::kF4_16);
      }
      block += kernels::BlockBytes(DType::kNVFP4);
    }
  }
}

}  // namespace quire::model
