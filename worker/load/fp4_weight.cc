// Weights of e2m1 as compressed-tensors and ModelOpt store them: the first of two codes is the low
// half of a byte.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/load/quantisation.h"

namespace quire::load {
namespace {

// The one number of a tensor, finite and above 0.
absl::StatusOr<float> ReadOuterScale(const ModuleQuery& query, std::string_view name) {
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, query.Require(name));
  QUIRE_RETURN_IF_ERROR(query.Expect(
      *tensor, {"F32"}, tensor->shape.empty() ? tensor->shape : std::vector<int64_t>{1}));
  const float scale = FloatElement(*tensor, 0);
  if (std::isfinite(scale) && scale > 0.0f) return scale;
  return query.Wrong(*tensor, absl::StrCat("holds ", scale, ", expected a finite number above 0"));
}

}  // namespace

absl::StatusOr<QuantisedMatrix> FindFp4Weight(const ModuleQuery& query, const Fp4Tensors& tensors) {
  if (query.cols % tensors.group != 0) {
    return query.Wrong(
        *tensors.codes,
        absl::StrCat("packs ", query.cols, " inputs, expected a multiple of ", tensors.group));
  }
  QUIRE_RETURN_IF_ERROR(query.Expect(*tensors.codes, {"U8"}, {query.rows, query.cols / 2}));
  QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, query.Require(tensors.scale));
  const bool exponents = tensors.outer_scale.empty();
  const int64_t groups = query.cols / tensors.group;
  const std::vector<std::string_view> types = exponents
                                                  ? std::vector<std::string_view>{"U8", "F8_E8M0"}
                                                  : std::vector<std::string_view>{"F8_E4M3"};
  QUIRE_RETURN_IF_ERROR(query.Expect(*scales, types, {query.rows, groups}));
  QuantisedMatrix matrix = query.Matrix();
  matrix.kind = CodeKind::kE2m1;
  matrix.codes = {
      .tensor = tensors.codes, .bits = 4, .word_bytes = 1, .line_stride = query.cols / 2};
  matrix.group = tensors.group;
  matrix.scale_row_stride = groups;
  matrix.scale_group_stride = 1;
  matrix.scales.tensor = scales;
  matrix.scales.kind = GroupScales::Kind::kExponent;
  if (exponents) return matrix;
  matrix.scales.kind = GroupScales::Kind::kE4m3;
  QUIRE_ASSIGN_OR_RETURN(const float outer, ReadOuterScale(query, tensors.outer_scale));
  (tensors.divides ? matrix.scales.divisor : matrix.scales.factor) = outer;
  return matrix;
}

}  // namespace quire::load
