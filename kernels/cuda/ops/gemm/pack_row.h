// One row of a matrix in its place in the packed stream of quantised weights (quantised.h). Host
// code.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cuda/ops/gemm/quantised.h"

namespace quire::kernels::cuda {

class RowPacker {
 public:
  RowPacker(const QuantisedWeight& layout, int64_t row, std::byte* packed)
      : layout_(layout),
        row_(static_cast<int>(row % 16)),
        stream_(packed + row / 16 * layout.fragment_bytes) {}

  int group_elements() const { return layout_.group_elements; }

  void Code(int64_t k, uint32_t q) const {
    const int lane = row_ % 8 * 4 + static_cast<int>(k % 8 / 2);
    const int step = static_cast<int>(k % 64 / 16);
    const int j = static_cast<int>(k % 2) + 2 * (row_ / 8) + 4 * static_cast<int>(k % 16 / 8);
    std::byte* tile = Tile(k);
    if (layout_.bits == 8) {
      tile[step / 2 * 512 + lane * 16 + step % 2 * 8 + j] = static_cast<std::byte>(q);
      return;
    }
    const int nibble = layout_.form == QuantForm::kGrouped ? j / 2 + 4 * (j % 2) : j;
    Or(tile + lane * 16 + step * 4, (q & 15u) << (4 * nibble));
    std::byte* high = tile + 512 + lane * 4;
    if (layout_.bits == 5) Or(high, (q >> 4) << (8 * step + j));
    if (layout_.bits == 6) Or(high + step / 2 * 128, (q >> 4) << (16 * (step % 2) + 2 * j));
  }

  // The row's `bytes` of an array of the tile's scales, for the group of k. `before`: bytes of a
  // row's group in the arrays in front of it.
  void Scale(int64_t k, int before, const void* from, int bytes) const {
    const int groups = 64 / layout_.group_elements;
    const int group = static_cast<int>(k % 64 / layout_.group_elements);
    const int at = 16 * groups * before + (group * 16 + row_) * bytes;
    std::memcpy(Tile(k) + ScalesAt(layout_.bits) + at, from, static_cast<size_t>(bytes));
  }

  // Super scale `array`, a float16, of the 256 that hold k.
  void Super(int64_t k, int array, const void* half) const {
    std::memcpy(Tile(k / 256 * 256) - layout_.super_bytes + 2 * (array * 16 + row_), half, 2);
  }

 private:
  std::byte* Tile(int64_t k) const {
    const int64_t tile = k / 64;
    const int64_t supers = layout_.super_bytes > 0 ? tile / 4 + 1 : 0;
    return stream_ + tile * layout_.tile_bytes + supers * layout_.super_bytes;
  }
  static void Or(std::byte* at, uint32_t bits) {
    uint32_t word;
    std::memcpy(&word, at, 4);
    word |= bits;
    std::memcpy(at, &word, 4);
  }

  const QuantisedWeight& layout_;
  int row_;
  std::byte* stream_;
};

// Whether products of this step with a code less its zero round once in the type, within its range.
inline bool IsNarrowStep(float step, bool half) {
  if (!(std::abs(step) <= 256.0f)) return false;
  if (!half) return (std::bit_cast<uint32_t>(step) & 0xffffu) == 0;
  // Steps of 2^−24 and ten bits below the first.
  const float magnitude = std::abs(step);
  if (magnitude < 0x1p-14f) return magnitude * 0x1p24f == std::floor(magnitude * 0x1p24f);
  return (std::bit_cast<uint32_t>(step) & 0x1fffu) == 0;
}

}  // namespace quire::kernels::cuda
