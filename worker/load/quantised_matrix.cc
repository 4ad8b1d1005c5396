#include "worker/load/quantised_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "kernels/grouped_blocks.h"

namespace quire::load {
namespace {

using kernels::DType;
namespace grouped = kernels::grouped;

constexpr int kRun = grouped::kRun;

absl::Status NotANumber(const Tensor& tensor, int64_t row, int64_t col) {
  return absl::InvalidArgumentError(absl::StrCat(tensor.file, ": tensor \"", tensor.name,
                                                 "\" holds NaN at [", row, ", ", col,
                                                 "]; every weight must be a number"));
}

// Eight codes at once: 1 added to seven bits that are all set carries into the eighth.
bool HasE4m3Nan(std::span<const std::byte> codes) {
  uint64_t carried = 0;
  size_t i = 0;
  for (; i + sizeof(carried) <= codes.size(); i += sizeof(carried)) {
    uint64_t eight = 0;
    std::memcpy(&eight, codes.data() + i, sizeof(eight));
    carried |= (eight & 0x7f7f7f7f7f7f7f7fu) + 0x0101010101010101u;
  }
  bool found = (carried & 0x8080808080808080u) != 0;
  for (; i < codes.size(); ++i) found = found || grouped::IsE4m3Nan(static_cast<uint8_t>(codes[i]));
  return found;
}

}  // namespace

DType QuantisedMatrix::Form() const {
  const auto whole = [this](int64_t run) {
    return group_of_input.empty() && cols % run == 0 && (group % run == 0 || group >= cols);
  };
  if (kind == CodeKind::kNf4 || kind == CodeKind::kFp4) {
    if (cols % BlockElements(DType::kNF4) != 0 || group % BlockElements(DType::kNF4) != 0) {
      return DType::kF32;
    }
    return kind == CodeKind::kNf4 ? DType::kNF4 : DType::kFP4;
  }
  if (kind == CodeKind::kE2m1 && scales.kind != GroupScales::Kind::kExponent) {
    return cols % kRun == 0 && group % 16 == 0 ? DType::kF4_16 : DType::kF32;
  }
  if (!whole(kRun)) return DType::kF32;
  if (kind == CodeKind::kE2m1) return DType::kMXFP4;
  if (kind == CodeKind::kE4m3) return large_scales ? DType::kF32 : DType::kF8;
  if (codes.bits > 4) return DType::kG8;
  return whole(BlockElements(DType::kG4_128)) ? DType::kG4_128 : DType::kG4;
}

void QuantisedMatrix::OrderByGroups() {
  if (group_of_input.empty() || rounding.code != kernels::ActivationRounding::Code::kNone) return;
  std::vector<int32_t> inputs(static_cast<size_t>(cols));
  std::iota(inputs.begin(), inputs.end(), 0);
  const auto group_of = [this](int32_t input) {
    return group_of_input[static_cast<size_t>(input)];
  };
  std::ranges::stable_sort(inputs, {}, group_of);
  for (int64_t col = 0; col < cols; ++col) {
    if (group_of(inputs[static_cast<size_t>(col)]) != col / group) return;
  }
  order = std::move(inputs);
  group_of_input.clear();
}

kernels::ActivationRounding QuantisedMatrix::RoundingFrom(int64_t col) const {
  kernels::ActivationRounding own = rounding;
  if (own.code == kernels::ActivationRounding::Code::kNone || group >= cols) return own;
  // A slice that begins within a group has groups of two lengths: no number of inputs is right.
  own.weight_group = col % group == 0 ? group : 1;
  return own;
}

// Of its row, or of the matrix where that is flat.
int64_t QuantisedMatrix::GroupAt(int64_t row, int64_t col) const {
  if (flat) return (row * cols + col) / group;
  if (!group_of_input.empty()) return group_of_input[static_cast<size_t>(col)];
  return group >= cols ? 0 : col / group;
}

// The first column behind `col` that may have another scale.
int64_t QuantisedMatrix::GroupEnd(int64_t row, int64_t col) const {
  if (flat) return col + group - (row * cols + col) % group;
  if (!group_of_input.empty()) return col + 1;
  return group >= cols ? cols : (col / group + 1) * group;
}

int64_t QuantisedMatrix::ScalePlace(int64_t row, int64_t col) const {
  const int64_t index = GroupAt(row, col);
  return flat ? index : row / rows_per_scale * scale_row_stride + index * scale_group_stride;
}

uint32_t QuantisedMatrix::ZeroAt(int64_t row, int64_t group_index) const {
  if (zeros.tensor == nullptr) return zero;
  return ((zeros.At(group_index, row) ^ flipped) + zero_add) & ((1u << codes.bits) - 1);
}

QuantisedMatrix::Group QuantisedMatrix::GroupFrom(int64_t row, int64_t col) const {
  Group found;
  found.place = ScalePlace(row, col);
  found.scale = scales.At(found.place);
  found.end = GroupEnd(row, col);
  if (kind == CodeKind::kInteger) found.zero = static_cast<int>(ZeroAt(row, GroupAt(row, col)));
  return found;
}

absl::Status QuantisedMatrix::CheckScale(int64_t row, int64_t col) const {
  const float scale = scales.At(ScalePlace(row, col));
  if (std::isfinite(scale)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(scales.tensor->file, ": tensor \"", scales.tensor->name, "\" holds ", scale,
                   " as the scale of row ", row, ", group ", GroupAt(row, col),
                   "; every scale must be a finite number"));
}

// One column of each group that a row of the slice has. Requires !flat.
std::vector<int64_t> QuantisedMatrix::ColumnsOfGroups(const Slice& slice) const {
  std::vector<int64_t> columns;
  std::vector<bool> seen;
  for (int64_t col = slice.col; col < slice.col + slice.cols; col = GroupEnd(0, col)) {
    const auto index = static_cast<size_t>(GroupAt(0, col));
    if (index >= seen.size()) seen.resize(index + 1);
    if (!seen[index]) columns.push_back(col);
    seen[index] = true;
  }
  return columns;
}

// Requires codes of bytes one after another, which all of e4m3 are.
absl::Status QuantisedMatrix::CheckCodes(const Slice& slice) const {
  QUIRE_CHECK(codes.word_bytes == 1 && codes.bits == 8 && codes.word_stride == 1 && !flat);
  for (int64_t row = slice.row; row < slice.row + slice.rows; ++row) {
    const std::span<const std::byte> all = BytesOfRows(row, 1);
    const auto read = all.subspan(static_cast<size_t>(slice.col), static_cast<size_t>(slice.cols));
    if (!HasE4m3Nan(read)) continue;
    const auto first = std::ranges::find_if(
        read, [](std::byte code) { return grouped::IsE4m3Nan(static_cast<uint8_t>(code)); });
    return NotANumber(*codes.tensor, row, slice.col + (first - read.begin()));
  }
  return absl::OkStatus();
}

absl::Status QuantisedMatrix::Check(const Slice& slice) const {
  QUIRE_CHECK(slice.row + slice.rows <= rows && slice.col + slice.cols <= cols);
  QUIRE_CHECK(order.empty() || slice.cols == cols);
  const std::vector<int64_t> columns = flat ? std::vector<int64_t>{} : ColumnsOfGroups(slice);
  const int64_t end = slice.col + slice.cols;
  for (int64_t row = slice.row; row < slice.row + slice.rows; ++row) {
    for (int64_t col = slice.col; flat && col < end; col = GroupEnd(row, col)) {
      QUIRE_RETURN_IF_ERROR(CheckScale(row, col));
    }
    if (row > slice.row && row % rows_per_scale != 0) continue;  // the scales of the row before
    for (const int64_t col : columns) QUIRE_RETURN_IF_ERROR(CheckScale(row, col));
  }
  return kind == CodeKind::kE4m3 ? CheckCodes(slice) : absl::OkStatus();
}

std::span<const std::byte> QuantisedMatrix::BytesOfRows(int64_t first, int64_t count) const {
  if (lines_are_inputs || codes.word_stride != 1) return {};
  const int64_t line = flat ? cols * codes.bits / 8 : codes.line_stride * codes.word_bytes;
  QUIRE_CHECK(first >= 0 && first + count <= rows);
  return codes.tensor->bytes.subspan(static_cast<size_t>(first * line),
                                     static_cast<size_t>(count * line));
}

}  // namespace quire::load
