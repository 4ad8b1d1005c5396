#include "kernels/cuda/ops/gemm/quantised.h"

#include <bit>
#include <cstring>

#include "kernels/cuda/ops/gemm/pack_row.h"
#include "kernels/gguf_blocks.h"
#include "kernels/grid_blocks.h"
#include "kernels/grouped_blocks.h"

namespace quire::kernels::cuda {
namespace {

struct Format {
  int bits;  // 0: no form
  QuantForm form;
  QuantScales scales;
  int group_elements;
  float offset;
};

Format IntegerFormat(DType type) {
  constexpr QuantForm kForm = QuantForm::kBlocks;
  switch (type) {
    case DType::kQ8_0:
      return {8, kForm, QuantScales::kD, 32, 128.0f};
    case DType::kQ4_0:
      return {4, kForm, QuantScales::kD, 32, 8.0f};
    case DType::kQ5_0:
      return {5, kForm, QuantScales::kD, 32, 16.0f};
    case DType::kQ4_1:
      return {4, kForm, QuantScales::kDM, 32, 0.0f};
    case DType::kQ5_1:
      return {5, kForm, QuantScales::kDM, 32, 0.0f};
    case DType::kQ4_K:
      return {4, kForm, QuantScales::kSuper, 32, 0.0f};
    case DType::kQ5_K:
      return {5, kForm, QuantScales::kSuper, 32, 0.0f};
    case DType::kQ6_K:
      return {6, kForm, QuantScales::kSigned, 16, 32.0f};
    default:
      return {};
  }
}

Format FormatOf(DType type) {
  switch (type) {
    case DType::kG4:
      return {4, QuantForm::kGrouped, QuantScales::kFloat, 32, 0.0f};
    case DType::kG4_128:
      return {4, QuantForm::kGrouped, QuantScales::kFloat, 64, 0.0f};
    case DType::kG8:
      return {8, QuantForm::kGrouped, QuantScales::kFloat, 32, 0.0f};
    case DType::kF8:
      return {8, QuantForm::kE4m3, QuantScales::kFloat, 32, 0.0f};
    case DType::kQ2_K:
      return {4, QuantForm::kTable, QuantScales::kSuper, 16, 0.0f};
    case DType::kQ3_K:
      return {4, QuantForm::kTable, QuantScales::kSigned, 16, 0.0f};
    case DType::kIQ4_XS:
      return {4, QuantForm::kTable, QuantScales::kSigned, 32, 0.0f};
    case DType::kMXFP4:
      return {4, QuantForm::kTable, QuantScales::kPower, 32, 0.0f};
    case DType::kNVFP4:
      return {4, QuantForm::kTable, QuantScales::kByte, 16, 0.0f};
    case DType::kF4_16:
      return {4, QuantForm::kTable, QuantScales::kFloat, 16, 0.0f};
    case DType::kNF4:
    case DType::kFP4:
      return {4, QuantForm::kFloats, QuantScales::kFloat, 64, 0.0f};
    case DType::kIQ4_NL:
    case DType::kQ1_0:
    case DType::kQ2_0:
      return {4, QuantForm::kTable, QuantScales::kD, 32, 0.0f};
    default:
      if (!gguf::IsGrid(type)) return IntegerFormat(type);
      return {4, QuantForm::kTable, QuantScales::kSigned, 16, 0.0f};
  }
}

// The values of an IQ1 weight: three points with the zero 7, then with the zero 9.
constexpr int8_t kIq1Table[16] = {-7, 1, 9, -9, -1, 7};
constexpr int8_t kQ2Table[16] = {0, 1, 2, 3};
constexpr int8_t kQ3Table[16] = {-4, -3, -2, -1, 0, 1, 2, 3};

void FillTable(DType type, uint32_t (&table)[4]) {
  const int8_t* values = gguf::IsIq1(type)      ? kIq1Table
                         : type == DType::kQ2_K ? kQ2Table
                         : type == DType::kQ3_K ? kQ3Table
                                                : gguf::TableOf(type);
  for (int i = 0; i < 16; ++i) {
    table[i / 4] |= static_cast<uint32_t>(values[i] + 128) << (8 * (i % 4));
  }
}

void FillFloats(DType type, uint32_t (&table)[4][4]) {
  for (int i = 0; i < 16; ++i) {
    const auto bits = std::bit_cast<uint32_t>(grouped::FloatTableOf(type)[i]);
    for (int byte = 0; byte < 4; ++byte) {
      table[byte][i / 4] |= (bits >> (8 * byte) & 255u) << (8 * (i % 4));
    }
  }
}

float UnitOf(DType type) {
  if (gguf::IsGrid(type)) return gguf::GridUnit(type);
  return type == DType::kNVFP4 || type == DType::kF4_16 ? 0.5f : 1.0f;  // their table is doubled
}

// A block of `elements` of K from `k` on, group by group: `read` fills in the codes of one.
template <class Read>
void PackCodes(int elements, int64_t k, const RowPacker& to, const Read& read) {
  uint8_t q[gguf::kGroup];
  for (int group = 0; group < elements / gguf::kGroup; ++group) {
    read(group, q);
    for (int j = 0; j < gguf::kGroup; ++j) to.Code(k + gguf::kGroup * group + j, q[j]);
  }
}

void PackSimple(DType type, const std::byte* block, int64_t k, const RowPacker& to) {
  to.Scale(k, 0, block, 2);
  if (gguf::HasMinimum(type)) to.Scale(k, 2, block + 2, 2);
  PackCodes(32, k, to, [&](int, auto& q) { gguf::ReadSimple(type, block, q); });
}

void PackQ8(const std::byte* block, int64_t k, const RowPacker& to) {
  to.Scale(k, 0, block, 2);
  for (int j = 0; j < 32; ++j) to.Code(k + j, gguf::U8(block + 2 + j) ^ 128u);
}

void PackK45(DType type, const std::byte* block, int64_t k, const RowPacker& to) {
  to.Super(k, 0, block);
  to.Super(k, 1, block + 2);
  for (int group = 0; group < gguf::kGroupsOfK; ++group) {
    uint8_t scale = 0;
    uint8_t minimum = 0;
    gguf::ReadK45Scale(block, group, scale, minimum);
    to.Scale(k + 32 * group, 0, &scale, 1);
    to.Scale(k + 32 * group, 1, &minimum, 1);
  }
  PackCodes(256, k, to, [&](int group, auto& q) { gguf::ReadK45(type, block, group, q); });
}

void PackQ6(const std::byte* block, int64_t k, const RowPacker& to) {
  to.Super(k, 0, block + gguf::kQ6Super);
  for (int i = 0; i < 16; ++i) to.Scale(k + 16 * i, 0, block + gguf::kQ6Scales + i, 1);
  PackCodes(256, k, to, [&](int group, auto& q) { gguf::ReadQ6(block, group, q); });
}

void PackQ2(const std::byte* block, int64_t k, const RowPacker& to) {
  to.Super(k, 0, block + gguf::kQ2Super);
  to.Super(k, 1, block + gguf::kQ2Super + 2);
  for (int i = 0; i < 16; ++i) {
    const uint32_t pair = gguf::U8(block + i);
    const auto scale = static_cast<uint8_t>(pair & 15u);
    const auto minimum = static_cast<uint8_t>(pair >> 4);
    to.Scale(k + 16 * i, 0, &scale, 1);
    to.Scale(k + 16 * i, 1, &minimum, 1);
  }
  PackCodes(256, k, to, [&](int group, auto& q) { gguf::ReadQ2(block, group, q); });
}

void PackQ3(const std::byte* block, int64_t k, const RowPacker& to) {
  to.Super(k, 0, block + gguf::kQ3Super);
  for (int i = 0; i < 16; ++i) {
    const auto scale = static_cast<int8_t>(gguf::ReadQ3Scale(block, i));
    to.Scale(k + 16 * i, 0, &scale, 1);
  }
  PackCodes(256, k, to, [&](int group, auto& q) { gguf::ReadQ3(block, group, q); });
}

void PackNibbleTable(DType type, const std::byte* block, int64_t k, const RowPacker& to) {
  const int elements = BlockElements(type);
  if (type == DType::kIQ4_XS) to.Super(k, 0, block);
  for (int group = 0; group < elements / gguf::kGroup; ++group) {
    if (type == DType::kIQ4_XS) {
      const auto scale = static_cast<int8_t>(gguf::ReadIq4Scale(block, group));
      to.Scale(k + 32 * group, 0, &scale, 1);
    } else {
      to.Scale(k + 32 * group, 0, block, type == DType::kMXFP4 ? 1 : 2);
    }
  }
  PackCodes(elements, k, to,
            [&](int group, auto& q) { gguf::ReadTableCodes(type, block, group, q); });
}

void PackNvfp4(const std::byte* block, int64_t k, const RowPacker& to) {
  const int elements = BlockElements(DType::kNVFP4);
  for (int i = 0; i < elements / 16; ++i) {
    const uint8_t scale = gguf::Nvfp4Scale(block, i);
    to.Scale(k + 16 * i, 0, &scale, 1);
  }
  PackCodes(elements, k, to, [&](int group, auto& q) { gguf::ReadNvfp4Codes(block, group, q); });
}

void PackGrid(DType type, const std::byte* block, int64_t k, const RowPacker& to) {
  const uint16_t d = gguf::GridSuper(type, block);
  const bool has_super = FormatOf(type).scales == QuantScales::kSigned;
  if (has_super) to.Super(k, 0, &d);
  for (int group = 0; group < BlockElements(type) / gguf::kGroup; ++group) {
    const int64_t at = k + gguf::kGroup * group;
    const gguf::GridGroup g = gguf::ReadGrid(type, block, group);
    for (int i = 0; i < 2; ++i) {
      const auto scale = static_cast<int8_t>(2 * g.scale[i] + 1);
      if (has_super) to.Scale(at + 16 * i, 0, &scale, 1);
    }
    if (!has_super) to.Scale(at, 0, &d, 2);
    for (int j = 0; j < gguf::kGroup; ++j) {
      const bool nine = gguf::IsIq1(type) && (g.zeros >> (j / 8) & 1) != 0;
      to.Code(at + j, g.codes[j] + (nine ? 3u : 0u));
    }
  }
}

void PackGrouped(DType type, const std::byte* block, int64_t k, const RowPacker& to) {
  const int8_t zero = grouped::HasZero(type) ? static_cast<int8_t>(grouped::Zero(block)) : 0;
  for (int64_t at = 0; at < BlockElements(type); at += to.group_elements()) {
    to.Scale(k + at, 0, block + (type == DType::kF4_16 ? at / 4 : 0), 4);
    if (grouped::HasZero(type)) to.Scale(k + at, 4, &zero, 1);
  }
  if (grouped::HasNibbles(type)) {
    return PackCodes(BlockElements(type), k, to,
                     [&](int run, auto& q) { grouped::ReadNibbles(type, block, run, q); });
  }
  const uint32_t flip = type == DType::kG8 ? 128u : 0u;
  const std::byte* codes = block + grouped::HeadBytes(type);
  for (int j = 0; j < grouped::kRun; ++j) to.Code(k + j, gguf::U8(codes + j) ^ flip);
}

void PackBlock(DType type, const std::byte* block, int64_t k, const RowPacker& to) {
  if (grouped::IsGrouped(type)) return PackGrouped(type, block, k, to);
  if (gguf::IsGrid(type)) return PackGrid(type, block, k, to);
  if (type == DType::kNVFP4) return PackNvfp4(block, k, to);
  if (gguf::HasTable(type)) return PackNibbleTable(type, block, k, to);
  if (type == DType::kQ8_0) return PackQ8(block, k, to);
  if (type == DType::kQ2_K) return PackQ2(block, k, to);
  if (type == DType::kQ3_K) return PackQ3(block, k, to);
  if (type == DType::kQ6_K) return PackQ6(block, k, to);
  if (type == DType::kQ4_K || type == DType::kQ5_K) return PackK45(type, block, k, to);
  PackSimple(type, block, k, to);
}

}  // namespace

bool CanStayQuantised(DType type, int64_t cols) {
  return FormatOf(type).bits > 0 && cols > 0 && cols % BlockElements(type) == 0;
}

QuantisedWeight QuantisedLayout(DType type, int64_t cols) {
  const Format format = FormatOf(type);
  QuantisedWeight layout;
  layout.bits = format.bits;
  layout.form = format.form;
  layout.scales = format.scales;
  layout.group_elements = format.group_elements;
  layout.offset = format.offset;
  layout.block_elements = BlockElements(type);
  if (format.form == QuantForm::kTable) FillTable(type, layout.table);
  if (format.form == QuantForm::kFloats) FillFloats(type, layout.float_table);
  layout.unit = UnitOf(type);
  layout.tile_bytes =
      ScalesAt(format.bits) + 64 / format.group_elements * 16 *
                                  ScaleBytes(format.scales, format.form == QuantForm::kGrouped);
  layout.super_bytes = SuperBytes(format.scales);
  const int64_t tiles = (cols + 63) / 64;
  const int64_t supers = layout.super_bytes > 0 ? (cols + 255) / 256 : 0;
  layout.fragment_bytes = tiles * layout.tile_bytes + supers * layout.super_bytes;
  return layout;
}

void PackQuantised(const WeightSource& source, int64_t first_row, std::byte* packed) {
  const QuantisedWeight layout = QuantisedLayout(source.type, source.cols);
  for (int64_t row = 0; row < source.rows; ++row) {
    const RowPacker to(layout, first_row + row, packed);
    const std::byte* block = source.Row(row);
    for (int64_t k = 0; k < source.cols; k += layout.block_elements) {
      PackBlock(source.type, block, k, to);
      block += BlockBytes(source.type);
    }
  }
}

QuantisedWeight LayoutByCodes(DType type, int64_t cols, bool step_of_row) {
  QuantisedWeight layout;
  layout.bits = 8;
  layout.form = type == DType::kG8 ? QuantForm::kInt8ByCodes : QuantForm::kE4m3ByCodes;
  layout.tile_bytes = kByCodesTileBytes;
  layout.end_groups = step_of_row ? 1 : static_cast<int>((cols + 127) / 128);
  layout.fragment_bytes = (cols + 63) / 64 * layout.tile_bytes + 64 * layout.end_groups;
  return layout;
}

void PackByCodes(const WeightSource& source, const QuantisedWeight& layout, int64_t first_row,
                 std::byte* packed) {
  constexpr int64_t kRun = grouped::kRun;
  const int64_t group = layout.end_groups == 1 ? source.cols : 128;
  for (int64_t row = 0; row < source.rows; ++row) {
    const int64_t at = first_row + row;
    std::byte* stream = packed + at / 16 * layout.fragment_bytes;
    std::byte* steps = stream + (source.cols + 63) / 64 * layout.tile_bytes;
    const std::byte* block = source.Row(row);
    for (int64_t k = 0; k < source.cols; k += kRun, block += BlockBytes(source.type)) {
      if (k % group == 0) std::memcpy(steps + 4 * (k / group * 16 + at % 16), block, 4);
      const std::byte* codes = block + grouped::HeadBytes(source.type);
      // Four codes of a register: lane 4 g + t has k = 4 t … of row g, in the lower or the upper
      // half of 16 rows and of 32 k.
      for (int64_t i = 0; i < kRun; i += 4) {
        const int64_t lane = at % 8 * 4 + i % 16 / 4;
        const int64_t part = at % 16 / 8 + 2 * (i / 16);
        std::memcpy(stream + k / 32 * 512 + lane * 16 + part * 4, codes + i, 4);
      }
    }
  }
}

bool HasNarrowSteps(const WeightSource& source, bool half) {
  if (!grouped::HasNibbleZero(source.type)) return false;
  for (int64_t row = 0; row < source.rows; ++row) {
    const std::byte* block = source.Row(row);
    for (int64_t k = 0; k < source.cols; k += BlockElements(source.type)) {
      if (!IsNarrowStep(grouped::Scale(block), half)) return false;
      block += BlockBytes(source.type);
    }
  }
  return true;
}

}  // namespace quire::kernels::cuda
