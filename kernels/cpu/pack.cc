// Packing: from rows of blocks as they lie in a model file to panels of 16 rows.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/formats.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/packed_matrix.h"

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
    return panel + SuperOffset(geometry->type, 8 * super);
  }
};

// Byte b of lane r in a vector of 16 lanes of 32 bits.
std::byte& LaneByte(std::byte* vector, int lane, int b) { return vector[lane * 4 + b]; }

// Low nibbles of 32 values: 8 k to a vector, k = 8 v + b in the low and 8 v + 4 + b in the high
// nibble.
void PutNibbles(std::byte* values, int lane, const uint8_t* q) {
  for (int v = 0; v < 4; ++v) {
    for (int b = 0; b < 4; ++b) {
      const int low = q[8 * v + b] & 15;
      const int high = q[8 * v + 4 + b] & 15;
      LaneByte(values + 64 * v, lane, b) = static_cast<std::byte>(low | (high << 4));
    }
  }
}

// Bit 4 of 32 values: one vector; k = 4 g + b stands in bit g of byte b.
void PutFifthBits(std::byte* vector, int lane, const uint8_t* q) {
  for (int b = 0; b < 4; ++b) {
    int bits = 0;
    for (int g = 0; g < 8; ++g) bits |= ((q[4 * g + b] >> 4) & 1) << g;
    LaneByte(vector, lane, b) = static_cast<std::byte>(bits);
  }
}

// Bits 4 and 5 of 32 values: two vectors of 16 k; k = 4 g + b stands in bits 2 g, 2 g + 1 of byte
// b.
void PutHighPairs(std::byte* vectors, int lane, const uint8_t* q) {
  for (int half = 0; half < 2; ++half) {
    for (int b = 0; b < 4; ++b) {
      int bits = 0;
      for (int g = 0; g < 4; ++g) bits |= ((q[16 * half + 4 * g + b] >> 4) & 3) << (2 * g);
      LaneByte(vectors + 64 * half, lane, b) = static_cast<std::byte>(bits);
    }
  }
}

uint8_t U8(const std::byte* p) { return static_cast<uint8_t>(*p); }

// The 32 values of a Q4_0, Q4_1, Q5_0 or Q5_1 block: nibble j is value j, or 16 + j from the high
// half.
void ReadSimpleBlock(const std::byte* quants, const std::byte* high, uint8_t* q) {
  uint32_t bits = 0;
  if (high != nullptr) std::memcpy(&bits, high, 4);
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<uint8_t>((U8(quants + j) & 15) | (((bits >> j) & 1) << 4));
    q[j + 16] = static_cast<uint8_t>((U8(quants + j) >> 4) | (((bits >> (j + 16)) & 1) << 4));
  }
}

void PackSimple(DType type, const std::byte* row, int64_t k, const LaneWriter& to) {
  const bool has_min = type == DType::kQ4_1 || type == DType::kQ5_1;
  const bool has_high = type == DType::kQ5_0 || type == DType::kQ5_1;
  const int scale_bytes = has_min ? 4 : 2;
  for (int64_t block = 0; block < k / kBlock; ++block) {
    const std::byte* from = row + block * BlockBytes(type);
    std::byte* scales = to.Scales(block);
    std::memcpy(scales + 2 * to.lane, from, 2);
    if (has_min) std::memcpy(scales + 32 + 2 * to.lane, from + 2, 2);
    from += scale_bytes;
    uint8_t q[32];
    ReadSimpleBlock(from + (has_high ? 4 : 0), has_high ? from : nullptr, q);
    std::byte* values = to.Values(block);
    PutNibbles(values, to.lane, q);
    if (has_high) PutFifthBits(values + 256, to.lane, q);
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

// Scale and minimum `index` of the eight in a Q4_K or Q5_K block: six bits each, packed into 12
// bytes.
void ReadScaleMin(const std::byte* packed, int index, uint8_t& scale, uint8_t& minimum) {
  if (index < 4) {
    scale = U8(packed + index) & 63;
    minimum = U8(packed + index + 4) & 63;
  } else {
    scale =
        static_cast<uint8_t>((U8(packed + index + 4) & 15) | ((U8(packed + index - 4) >> 6) << 4));
    minimum =
        static_cast<uint8_t>((U8(packed + index + 4) >> 4) | ((U8(packed + index) >> 6) << 4));
  }
}

// Q4_K: [d, dmin][12 scale bytes][128 nibbles]; Q5_K has 32 bytes of fifth bits before the nibbles.
void PackK45(DType type, const std::byte* row, int64_t k, const LaneWriter& to) {
  const bool has_high = type == DType::kQ5_K;
  for (int64_t super = 0; super < k / 256; ++super) {
    const std::byte* from = row + super * BlockBytes(type);
    std::byte* super_scales = to.SuperScales(super);
    std::memcpy(super_scales + 2 * to.lane, from, 2);
    std::memcpy(super_scales + 32 + 2 * to.lane, from + 2, 2);
    const std::byte* high = from + 16;
    const std::byte* nibbles = from + (has_high ? 48 : 16);
    for (int sub = 0; sub < 8; ++sub) {
      uint8_t q[32];
      for (int i = 0; i < 32; ++i) {
        const uint8_t byte = U8(nibbles + 32 * (sub / 2) + i);
        q[i] = sub % 2 == 0 ? byte & 15 : byte >> 4;
        if (has_high) q[i] = static_cast<uint8_t>(q[i] | (((U8(high + i) >> sub) & 1) << 4));
      }
      const int64_t block = super * 8 + sub;
      std::byte* values = to.Values(block);
      PutNibbles(values, to.lane, q);
      if (has_high) PutFifthBits(values + 256, to.lane, q);
      uint8_t scale = 0;
      uint8_t minimum = 0;
      ReadScaleMin(from + 4, sub, scale, minimum);
      std::byte* scales = to.Scales(block);
      scales[to.lane] = static_cast<std::byte>(scale);
      scales[16 + to.lane] = static_cast<std::byte>(minimum);
    }
  }
}

// Q6_K: [128 low nibbles][64 high pairs][16 int8 scales][d].
void PackQ6(const std::byte* row, int64_t k, const LaneWriter& to) {
  for (int64_t super = 0; super < k / 256; ++super) {
    const std::byte* from = row + super * 210;
    std::memcpy(to.SuperScales(super) + 2 * to.lane, from + 208, 2);
    for (int sub = 0; sub < 8; ++sub) {
      const int half = sub / 4;  // 128 elements each
      const int quarter = sub % 4;
      uint8_t q[32];
      for (int i = 0; i < 32; ++i) {
        const uint8_t low = U8(from + 64 * half + 32 * (quarter % 2) + i);
        const uint8_t high = U8(from + 128 + 32 * half + i);
        q[i] = static_cast<uint8_t>((quarter < 2 ? low & 15 : low >> 4) |
                                    (((high >> (2 * quarter)) & 3) << 4));
      }
      const int64_t block = super * 8 + sub;
      std::byte* values = to.Values(block);
      PutNibbles(values, to.lane, q);
      PutHighPairs(values + 256, to.lane, q);
      std::byte* scales = to.Scales(block);
      scales[to.lane] = from[192 + 2 * sub];
      scales[16 + to.lane] = from[192 + 2 * sub + 1];
    }
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

void PackRow(const std::byte* row, const LaneWriter& to) {
  const DType type = to.geometry->type;
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
    default:
      return PackSimple(type, row, k, to);
  }
}

}  // namespace

void PackPanels(PackedMatrix& matrix, const Weight& weight, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const Panel& panel = matrix.panels[i];
    const WeightSource& source = weight.parts[panel.part];
    // The panel's memory belongs to `matrix`; kernels see it as constant.
    std::byte* data = matrix.memory.data() + (panel.data - matrix.memory.data());
    for (int lane = 0; lane < panel.rows; ++lane) {
      const std::byte* row = source.Row(panel.part_row + lane);
      PackRow(row, LaneWriter{data, &matrix.geometries[panel.geometry], lane});
    }
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
