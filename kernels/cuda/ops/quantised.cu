#include "kernels/cuda/ops/quantised.h"

#include <cstring>

namespace quire::kernels::cuda {
namespace {

struct Format {
  int bits;
  QuantScales scales;
  float offset;
};

// bits 0: not a quantised type.
Format FormatOf(DType type) {
  switch (type) {
    case DType::kQ8_0:
      return {8, QuantScales::kD, 128.0f};
    case DType::kQ4_0:
      return {4, QuantScales::kD, 8.0f};
    case DType::kQ5_0:
      return {5, QuantScales::kD, 16.0f};
    case DType::kQ4_1:
      return {4, QuantScales::kDM, 0.0f};
    case DType::kQ5_1:
      return {5, QuantScales::kDM, 0.0f};
    case DType::kQ4_K:
      return {4, QuantScales::kSuper, 0.0f};
    case DType::kQ5_K:
      return {5, QuantScales::kSuper, 0.0f};
    case DType::kQ6_K:
      return {6, QuantScales::kSigned, 32.0f};
    default:
      return {0, QuantScales::kD, 0.0f};
  }
}

uint32_t U8(const std::byte* p) { return static_cast<uint8_t>(*p); }

// One row of a matrix in its place in the packed stream.
class RowPacker {
 public:
  RowPacker(const QuantisedWeight& layout, int64_t row, std::byte* packed)
      : layout_(layout),
        row_(static_cast<int>(row % 16)),
        stream_(packed + row / 16 * layout.fragment_bytes) {}

  void Quant(int64_t k, uint32_t q) const {
    const int lane = row_ % 8 * 4 + static_cast<int>(k % 8 / 2);
    const int step = static_cast<int>(k % 64 / 16);
    const int j = static_cast<int>(k % 2) + 2 * (row_ / 8) + 4 * static_cast<int>(k % 16 / 8);
    std::byte* tile = Tile(k);
    if (layout_.bits == 8) {
      tile[step / 2 * 512 + lane * 16 + step % 2 * 8 + j] = static_cast<std::byte>(q);
      return;
    }
    Or(tile + lane * 16 + step * 4, (q & 15u) << (4 * j));
    std::byte* high = tile + 512 + lane * 4;
    if (layout_.bits == 5) Or(high, (q >> 4) << (8 * step + j));
    if (layout_.bits == 6) Or(high + step / 2 * 128, (q >> 4) << (16 * (step % 2) + 2 * j));
  }

  // Bytes of the row's part of array `array` of the tile's scales, of the group of k.
  void Scale(int64_t k, int array, const void* from, int bytes) const {
    const int group_elements = layout_.bits == 6 ? 16 : 32;
    const int groups = 64 / group_elements;
    const int group = static_cast<int>(k % 64 / group_elements);
    const int quants = layout_.bits == 8 ? 1024 : 512;
    const int high = layout_.bits == 5 ? 128 : layout_.bits == 6 ? 256 : 0;
    const int at = (array * groups + group) * 16 + row_;
    memcpy(Tile(k) + quants + high + at * bytes, from, static_cast<size_t>(bytes));
  }

  void Super(int64_t k, int array, const void* half) const {
    memcpy(Tile(k / 256 * 256) - layout_.super_bytes + 2 * (array * 16 + row_), half, 2);
  }

 private:
  std::byte* Tile(int64_t k) const {
    const int64_t tile = k / 64;
    const int64_t supers = layout_.super_bytes > 0 ? tile / 4 + 1 : 0;
    return stream_ + tile * layout_.tile_bytes + supers * layout_.super_bytes;
  }
  static void Or(std::byte* at, uint32_t bits) {
    uint32_t word;
    memcpy(&word, at, 4);
    word |= bits;
    memcpy(at, &word, 4);
  }

  const QuantisedWeight& layout_;
  int row_;
  std::byte* stream_;
};

// Q4_0, Q4_1, Q5_0, Q5_1: nibble j is value j, or 16 + j from the high half.
void PackSimple(DType type, const std::byte* block, int64_t k, const RowPacker& to) {
  const bool has_minimum = type == DType::kQ4_1 || type == DType::kQ5_1;
  const bool has_high = type == DType::kQ5_0 || type == DType::kQ5_1;
  to.Scale(k, 0, block, 2);
  if (has_minimum) to.Scale(k, 1, block + 2, 2);
  const std::byte* at = block + (has_minimum ? 4 : 2);
  uint32_t high = 0;
  if (has_high) {
    memcpy(&high, at, 4);
    at += 4;
  }
  for (int j = 0; j < 32; ++j) {
    const uint32_t low = j < 16 ? U8(at + j) & 15u : U8(at + j - 16) >> 4;
    to.Quant(k + j, low | (high >> j & 1u) << 4);
  }
}

void PackQ8(const std::byte* block, int64_t k, const RowPacker& to) {
  to.Scale(k, 0, block, 2);
  for (int j = 0; j < 32; ++j) to.Quant(k + j, U8(block + 2 + j) ^ 128u);
}

// [d, dmin][12 bytes of six-bit scales and minima][fifth bits][nibbles].
void PackK45(DType type, const std::byte* block, int64_t k, const RowPacker& to) {
  const bool has_high = type == DType::kQ5_K;
  to.Super(k, 0, block);
  to.Super(k, 1, block + 2);
  const std::byte* packed = block + 4;
  const std::byte* nibbles = block + (has_high ? 48 : 16);
  for (int group = 0; group < 8; ++group) {
    uint32_t scale = U8(packed + group) & 63u;
    uint32_t minimum = U8(packed + group + 4) & 63u;
    if (group >= 4) {
      scale = (U8(packed + group + 4) & 15u) | (U8(packed + group - 4) >> 6) << 4;
      minimum = (U8(packed + group + 4) >> 4) | (U8(packed + group) >> 6) << 4;
    }
    const auto scale_byte = static_cast<uint8_t>(scale);
    const auto minimum_byte = static_cast<uint8_t>(minimum);
    to.Scale(k + 32 * group, 0, &scale_byte, 1);
    to.Scale(k + 32 * group, 1, &minimum_byte, 1);
    for (int j = 0; j < 32; ++j) {
      const uint32_t byte = U8(nibbles + 32 * (group / 2) + j);
      uint32_t q = group % 2 == 0 ? byte & 15u : byte >> 4;
      if (has_high) q |= (U8(block + 16 + j) >> group & 1u) << 4;
      to.Quant(k + 32 * group + j, q);
    }
  }
}

// [128 low nibbles][64 high pairs][16 int8 scales][d].
void PackQ6(const std::byte* block, int64_t k, const RowPacker& to) {
  to.Super(k, 0, block + 208);
  for (int group = 0; group < 16; ++group) to.Scale(k + 16 * group, 0, block + 192 + group, 1);
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128;
    const int within = j % 128;
    const uint32_t byte = U8(block + half * 64 + within % 64);
    const uint32_t low = within < 64 ? byte & 15u : byte >> 4;
    const uint32_t high = U8(block + 128 + half * 32 + within % 32) >> (within / 32 * 2) & 3u;
    to.Quant(k + j, low | high << 4);
  }
}

void PackBlock(DType type, const std::byte* block, int64_t k, const RowPacker& to) {
  if (type == DType::kQ8_0) return PackQ8(block, k, to);
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
  layout.scales = format.scales;
  layout.offset = format.offset;
  layout.block_elements = BlockElements(type);
  const int quants = format.bits == 8 ? 1024 : 512;
  const int high = format.bits == 5 ? 128 : format.bits == 6 ? 256 : 0;
  layout.tile_bytes = quants + high + (format.scales == QuantScales::kDM ? 128 : 64);
  if (format.scales == QuantScales::kSuper) layout.super_bytes = 64;
  if (format.scales == QuantScales::kSigned) layout.super_bytes = 32;
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

}  // namespace quire::kernels::cuda
