#include "kernels/cuda/ops/gemm/quantised.h"

#include <cstring>

#include "kernels/gguf_blocks.h"

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

void PackGroup(const uint8_t (&q)[gguf::kGroup], int64_t k, const RowPacker& to) {
  for (int j = 0; j < gguf::kGroup; ++j) to.Quant(k + j, q[j]);
}

void PackSimple(DType type, const std::byte* block, int64_t k, const RowPacker& to) {
  to.Scale(k, 0, block, 2);
  if (gguf::HasMinimum(type)) to.Scale(k, 1, block + 2, 2);
  uint8_t q[gguf::kGroup];
  gguf::ReadSimple(type, block, q);
  PackGroup(q, k, to);
}

void PackQ8(const std::byte* block, int64_t k, const RowPacker& to) {
  to.Scale(k, 0, block, 2);
  for (int j = 0; j < 32; ++j) to.Quant(k + j, gguf::U8(block + 2 + j) ^ 128u);
}

void PackK45(DType type, const std::byte* block, int64_t k, const RowPacker& to) {
  to.Super(k, 0, block);
  to.Super(k, 1, block + 2);
  for (int group = 0; group < gguf::kGroupsOfK; ++group) {
    const int64_t at = k + gguf::kGroup * group;
    uint8_t scale = 0;
    uint8_t minimum = 0;
    gguf::ReadK45Scale(block, group, scale, minimum);
    to.Scale(at, 0, &scale, 1);
    to.Scale(at, 1, &minimum, 1);
    uint8_t q[gguf::kGroup];
    gguf::ReadK45(type, block, group, q);
    PackGroup(q, at, to);
  }
}

void PackQ6(const std::byte* block, int64_t k, const RowPacker& to) {
  to.Super(k, 0, block + gguf::kQ6Super);
  for (int i = 0; i < 16; ++i) to.Scale(k + 16 * i, 0, block + gguf::kQ6Scales + i, 1);
  for (int group = 0; group < gguf::kGroupsOfK; ++group) {
    uint8_t q[gguf::kGroup];
    gguf::ReadQ6(block, group, q);
    PackGroup(q, k + gguf::kGroup * group, to);
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
