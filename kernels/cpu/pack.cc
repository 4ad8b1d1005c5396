// Packing: from rows of blocks in a model file to panels of 16 rows.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/formats.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/pack_panel.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/gguf_blocks.h"
#include "kernels/grid_blocks.h"
#include "kernels/grouped_blocks.h"
#include "kernels/row_writer.h"

namespace quire::kernels::cpu {
namespace {

// Where the bytes of one row go in its panel.
struct LaneWriter {
  std::byte* panel;
  const PanelGeometry* geometry;
  int lane;

  std::byte* Scales(int64_t block) const { return panel + BlockOffset(geometry->type, block); }
  std::byte* Values(int64_t block) const { return Scales(block) + ScaleBytes(geometry->type); }
  std::byte* SuperScales(int64_t super) const {
    return panel + SuperOffset(geometry->type, SuperBlocks(geometry->type) * super);
  }
};

// Four values at once, one to a byte.
uint32_t FourOf(const uint8_t* q) {
  uint32_t word = 0;
  std::memcpy(&word, q, 4);
  return word;
}
void PutLane(std::byte* vector, int lane, uint32_t word) {
  std::memcpy(vector + 4 * lane, &word, 4);
}

// Low nibbles of 32 values: 8 k to a vector, k = 8 v + b in the low and 8 v + 4 + b in the high
// nibble.
void PutNibbles(std::byte* values, int lane, const uint8_t* q) {
  for (int v = 0; v < 4; ++v) {
    const uint32_t low = FourOf(q + 8 * v) & 0x0f0f0f0fu;
    const uint32_t high = FourOf(q + 8 * v + 4) & 0x0f0f0f0fu;
    PutLane(values + 64 * v, lane, low | high << 4);
  }
}

// Bit `place` of 32 values: one vector; k = 4 g + b is in bit g of byte b.
void PutBits(std::byte* vector, int lane, const uint8_t* q, int place) {
  uint32_t bits = 0;
  for (int g = 0; g < 8; ++g) bits |= (FourOf(q + 4 * g) >> place & 0x01010101u) << g;
  PutLane(vector, lane, bits);
}

// Bits `shift` and the next of 32 values: two vectors of 16 k; k = 4 g + b is in bits 2 g,
// 2 g + 1 of byte b.
void PutPairs(std::byte* vectors, int lane, const uint8_t* q, int shift) {
  for (int half = 0; half < 2; ++half) {
    uint32_t bits = 0;
    for (int g = 0; g < 4; ++g) {
      bits |= (FourOf(q + 16 * half + 4 * g) >> shift & 0x03030303u) << (2 * g);
    }
    PutLane(vectors + 64 * half, lane, bits);
  }
}

void PackSimple(DType type, const std::byte* row, int64_t k, const LaneWriter& to) {
  for (int64_t block = 0; block < k / kBlock; ++block) {
    const std::byte* from = row + block * BlockBytes(type);
    std::byte* scales = to.Scales(block);
    std::memcpy(scales + 2 * to.lane, from, 2);
    if (gguf::HasMinimum(type)) std::memcpy(scales + 32 + 2 * to.lane, from + 2, 2);
    uint8_t q[gguf::kGroup];
    gguf::ReadSimple(type, from, q);
    std::byte* values = to.Values(block);
    PutNibbles(values, to.lane, q);
    if (gguf::HasFifthBit(type)) PutBits(values + 256, to.lane, q, 4);
  }
}

void PackQ8(const std::byte* row, int64_t k, const LaneWriter& to) {
  for (int64_t block = 0; block < k / kBlock; ++block) {
    const std::byte* from = row + block * 34;
    std::memcpy(to.Scales(block) + 2 * to.lane, from, 2);
    for (int v = 0; v < 8; ++v) {
      std::memcpy(to.Values(block) + 64 * v + 4 * to.lane, from + 2 + 4 * v, 4);
    }
  }
}

void PackK45(DType type, const std::byte* row, int64_t k, const LaneWriter& to) {
  for (int64_t super = 0; super < k / 256; ++super) {
    const std::byte* from = row + super * BlockBytes(type);
    std::byte* super_scales = to.SuperScales(super);
    std::memcpy(super_scales + 2 * to.lane, from, 2);
    std::memcpy(super_scales + 32 + 2 * to.lane, from + 2, 2);
    for (int sub = 0; sub < gguf::kGroupsOfK; ++sub) {
      uint8_t q[gguf::kGroup];
      gguf::ReadK45(type, from, sub, q);
      const int64_t block = super * 8 + sub;
      std::byte* values = to.Values(block);
      PutNibbles(values, to.lane, q);
      if (gguf::HasFifthBit(type)) PutBits(values + 256, to.lane, q, 4);
      uint8_t scale = 0;
      uint8_t minimum = 0;
      gguf::ReadK45Scale(from, sub, scale, minimum);
      std::byte* scales = to.Scales(block);
      scales[to.lane] = static_cast<std::byte>(scale);
      scales[16 + to.lane] = static_cast<std::byte>(minimum);
    }
  }
}

void PackQ6(const std::byte* row, int64_t k, const LaneWriter& to) {
  for (int64_t super = 0; super < k / 256; ++super) {
    const std::byte* from = row + super * 210;
    std::memcpy(to.SuperScales(super) + 2 * to.lane, from + gguf::kQ6Super, 2);
    for (int sub = 0; sub < gguf::kGroupsOfK; ++sub) {
      uint8_t q[gguf::kGroup];
      gguf::ReadQ6(from, sub, q);
      const int64_t block = super * 8 + sub;
      std::byte* values = to.Values(block);
      PutNibbles(values, to.lane, q);
      PutPairs(values + 256, to.lane, q, 4);
      std::byte* scales = to.Scales(block);
      scales[to.lane] = from[gguf::kQ6Scales + 2 * sub];
      scales[16 + to.lane] = from[gguf::kQ6Scales + 2 * sub + 1];
    }
  }
}

void PackQ2(const std::byte* row, int64_t k, const LaneWriter& to) {
  for (int64_t super = 0; super < k / 256; ++super) {
    const std::byte* from = row + super * BlockBytes(DType::kQ2_K);
    std::memcpy(to.SuperScales(super) + 2 * to.lane, from + gguf::kQ2Super, 2);
    std::memcpy(to.SuperScales(super) + 32 + 2 * to.lane, from + gguf::kQ2Super + 2, 2);
    for (int sub = 0; sub < gguf::kGroupsOfK; ++sub) {
      uint8_t q[gguf::kGroup];
      gguf::ReadQ2(from, sub, q);
      const int64_t block = super * 8 + sub;
      PutPairs(to.Values(block), to.lane, q, 0);
      to.Scales(block)[to.lane] = from[2 * sub];
      to.Scales(block)[16 + to.lane] = from[2 * sub + 1];
    }
  }
}

void PackQ3(const std::byte* row, int64_t k, const LaneWriter& to) {
  for (int64_t super = 0; super < k / 256; ++super) {
    const std::byte* from = row + super * BlockBytes(DType::kQ3_K);
    std::memcpy(to.SuperScales(super) + 2 * to.lane, from + gguf::kQ3Super, 2);
    for (int sub = 0; sub < gguf::kGroupsOfK; ++sub) {
      uint8_t q[gguf::kGroup];
      gguf::ReadQ3(from, sub, q);
      const int64_t block = super * 8 + sub;
      PutPairs(to.Values(block), to.lane, q, 0);
      PutBits(to.Values(block) + 128, to.lane, q, 2);
      for (int half = 0; half < 2; ++half) {
        to.Scales(block)[16 * half + to.lane] =
            static_cast<std::byte>(gguf::ReadQ3Scale(from, 2 * sub + half));
      }
    }
  }
}

void PackTable(DType type, const std::byte* row, int64_t k, const LaneWriter& to) {
  const int groups = BlockElements(type) / gguf::kGroup;
  for (int64_t block = 0; block < k / gguf::kGroup; ++block) {
    const std::byte* from = row + block / groups * BlockBytes(type);
    const int group = static_cast<int>(block % groups);
    if (type == DType::kIQ4_NL) {
      std::memcpy(to.Scales(block) + 2 * to.lane, from, 2);
    } else if (type == DType::kMXFP4) {
      to.Scales(block)[to.lane] = from[0];
    } else {
      if (group == 0) std::memcpy(to.SuperScales(block / groups) + 2 * to.lane, from, 2);
      to.Scales(block)[to.lane] = static_cast<std::byte>(gguf::ReadIq4Scale(from, group));
    }
    uint8_t q[gguf::kGroup];
    gguf::ReadTableCodes(type, from, group, q);
    PutNibbles(to.Values(block), to.lane, q);
  }
}

void PackNvfp4(const std::byte* row, int64_t k, const LaneWriter& to) {
  const int groups = SuperBlocks(DType::kNVFP4);
  for (int64_t block = 0; block < k / gguf::kGroup; ++block) {
    const std::byte* from = row + block / groups * BlockBytes(DType::kNVFP4);
    const int group = static_cast<int>(block % groups);
    uint8_t q[gguf::kGroup];
    gguf::ReadNvfp4Codes(from, group, q);
    PutNibbles(to.Values(block), to.lane, q);
    for (int half = 0; half < 2; ++half) {
      to.Scales(block)[16 * half + to.lane] = std::byte{gguf::Nvfp4Scale(from, 2 * group + half)};
    }
  }
}

void PackGrid(DType type, const std::byte* row, int64_t k, const LaneWriter& to) {
  const int groups = SuperBlocks(type);
  for (int64_t super = 0; super < k / BlockElements(type); ++super) {
    const std::byte* from = row + super * BlockBytes(type);
    const uint16_t d = gguf::GridSuper(type, from);
    std::memcpy(to.SuperScales(super) + 2 * to.lane, &d, 2);
    for (int sub = 0; sub < groups; ++sub) {
      const gguf::GridGroup group = gguf::ReadGrid(type, from, sub);
      const int64_t block = super * groups + sub;
      std::byte* values = to.Values(block);
      if (type == DType::kQ1_0) {
        PutBits(values, to.lane, group.codes, 0);
      } else if (HasPairs(type)) {
        PutPairs(values, to.lane, group.codes, 0);
      } else {
        PutNibbles(values, to.lane, group.codes);
      }
      if (HasThirdBit(type)) PutBits(values + 128, to.lane, group.codes, 2);
      for (int i = 0; i < ScaleBytes(type) / 16; ++i) {
        to.Scales(block)[16 * i + to.lane] = std::byte{gguf::GridScaleByte(type, group, i)};
      }
    }
  }
}

// By type, so that places are constants: a checkpoint has a block for each 32 weights.
template <DType kType>
void PackGroupedAs(const std::byte* row, int64_t k, const LaneWriter& to) {
  const int runs = SuperBlocks(kType);
  for (int64_t block = 0; block < k / BlockElements(kType); ++block) {
    const std::byte* from = row + block * BlockBytes(kType);
    std::byte* head = to.panel + (SuperBytes(kType) > 0 ? SuperOffset(kType, runs * block)
                                                        : BlockOffset(kType, block));
    std::memcpy(head + 4 * to.lane, from, 4);
    if (kType == DType::kF4_16) std::memcpy(head + 64 + 4 * to.lane, from + 4, 4);
    if (grouped::HasZero(kType)) head[64 + to.lane] = from[4];
    for (int run = 0; run < runs; ++run) {
      std::byte* values = to.panel + BlockOffset(kType, block * runs + run) + ScaleBytes(kType);
      if (grouped::HasNibbles(kType)) {
        uint8_t q[grouped::kRun];
        grouped::ReadNibbles(kType, from, run, q);
        PutNibbles(values, to.lane, q);
        continue;
      }
      for (int v = 0; v < 8; ++v) {
        std::memcpy(values + 64 * v + 4 * to.lane, from + grouped::HeadBytes(kType) + 4 * v, 4);
      }
    }
  }
}

void PackGrouped(DType type, const std::byte* row, int64_t k, const LaneWriter& to) {
  switch (type) {
    case DType::kG4:
      return PackGroupedAs<DType::kG4>(row, k, to);
    case DType::kG4_128:
      return PackGroupedAs<DType::kG4_128>(row, k, to);
    case DType::kG8:
      return PackGroupedAs<DType::kG8>(row, k, to);
    case DType::kF8:
      return PackGroupedAs<DType::kF8>(row, k, to);
    case DType::kF4_16:
      return PackGroupedAs<DType::kF4_16>(row, k, to);
    case DType::kNF4:
      return PackGroupedAs<DType::kNF4>(row, k, to);
    default:
      return PackGroupedAs<DType::kFP4>(row, k, to);
  }
}

void PackFloats(DType type, const std::byte* row, int64_t k, const LaneWriter& to) {
  for (int64_t i = 0; i < k; ++i) {
    if (type == DType::kF32) {
      std::memcpy(to.panel + i * 64 + 4 * to.lane, row + 4 * i, 4);
    } else if (type == DType::kF16) {
      std::memcpy(to.panel + i * 32 + 2 * to.lane, row + 2 * i, 2);
    } else {  // pairs of k to a lane
      std::memcpy(to.panel + i / 2 * 64 + 4 * to.lane + 2 * (i % 2), row + 2 * i, 2);
    }
  }
}

void PackLane(DType type, const std::byte* row, const LaneWriter& to) {
  const int64_t k = to.geometry->k;
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return PackFloats(type, row, k, to);
    case DType::kQ8_0:
      return PackQ8(row, k, to);
    case DType::kQ4_K:
    case DType::kQ5_K:
      return PackK45(type, row, k, to);
    case DType::kQ6_K:
      return PackQ6(row, k, to);
    case DType::kQ2_K:
      return PackQ2(row, k, to);
    case DType::kQ3_K:
      return PackQ3(row, k, to);
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMXFP4:
      return PackTable(type, row, k, to);
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ1_0:
    case DType::kQ2_0:
      return PackGrid(type, row, k, to);
    case DType::kNVFP4:
      return PackNvfp4(row, k, to);
    case DType::kG4:
    case DType::kG4_128:
    case DType::kG8:
    case DType::kF8:
    case DType::kF4_16:
    case DType::kNF4:
    case DType::kFP4:
      return PackGrouped(type, row, k, to);
    default:
      return PackSimple(type, row, k, to);
  }
}

}  // namespace

PanelRows RowsOf(const WeightSource& source, const Panel& panel, std::vector<std::byte>& scratch) {
  if (source.writer == nullptr) return {source.Row(panel.part_row), source.RowStride()};
  scratch.resize(static_cast<size_t>(panel.rows * source.RowBytes()));
  source.writer->Write(panel.part_row, panel.rows, scratch.data());
  return {scratch.data(), source.RowBytes()};
}

void PackPanel(PackedMatrix& matrix, int panel, const PanelRows& rows) {
  const Panel& to = matrix.panels[static_cast<size_t>(panel)];
  const PanelGeometry& geometry = matrix.geometries[static_cast<size_t>(to.geometry)];
  // The panel's memory belongs to `matrix`; kernels see it as constant.
  std::byte* data = matrix.memory.data() + (to.data - matrix.memory.data());
  if (to.rows == kPanelRows &&
      PackWholePanel(geometry.type, rows.first, rows.stride, geometry.k, data)) {
    return;
  }
  for (int lane = 0; lane < to.rows; ++lane) {
    PackLane(geometry.type, rows.first + lane * rows.stride, LaneWriter{data, &geometry, lane});
  }
}

void PackPanels(PackedMatrix& matrix, const Weight& weight, int begin, int end) {
  std::vector<std::byte> scratch;
  for (int i = begin; i < end; ++i) {
    const Panel& panel = matrix.panels[static_cast<size_t>(i)];
    PackPanel(matrix, i, RowsOf(weight.parts[static_cast<size_t>(panel.part)], panel, scratch));
  }
}

std::vector<float> UnpackVector(const Weight& weight) {
  std::vector<float> values;
  for (const WeightSource& part : weight.parts) {
    const int64_t count = part.rows * part.cols;
    for (int64_t i = 0; i < count; ++i) {
      float value = 0.0f;
      if (part.type == DType::kF32) {
        std::memcpy(&value, part.data + 4 * i, 4);
      } else {
        uint16_t bits = 0;
        std::memcpy(&bits, part.data + 2 * i, 2);
        value = part.type == DType::kF16 ? HalfToFloat(bits) : BFloatToFloat(bits);
      }
      values.push_back(value);
    }
  }
  return values;
}

}  // namespace quire::kernels::cpu
