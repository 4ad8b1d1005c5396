// Rows of x as int8 with a scale for each 32 k: the input of the int8 class (int8_form.h has rule
// and layout).
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cpu/int8_form.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/linear_direct.h"

namespace quire::kernels::cpu {

// The tiles of a product's rows: few rows are one tile, padded with zeros.
struct Int8Tiles {
  RowTiles tiles;
  int padded = 0;  // rows in memory

  Int8Tiles(int rows, int direct_rows, int tile_rows)
      : tiles(rows, rows <= direct_rows ? rows : tile_rows),
        padded(rows <= direct_rows ? DirectRows(rows) : rows) {}
  int RowsOf(int tile) const {
    return padded > tiles.rows ? padded : tiles.Begin(tile + 1) - tiles.Begin(tile);
  }
};

// One block of one row; words of a row lie `rows` apart.
template <class V>
[[gnu::always_inline]] inline void QuantiseBlock(const float* x, int rows, int32_t* at) {
  const auto a = V::Load(x);
  const auto b = V::Load(x + 16);
  // As integers magnitudes keep their order, and whatever is not finite is above all that is.
  const auto sign = V::SetInt(0x7fffffffu);
  const uint32_t top =
      V::ReduceMaxInt(V::MaxInt(V::And(V::AsInt(a), sign), V::And(V::AsInt(b), sign)));
  const float largest = std::bit_cast<float>(top);
  const float inverse = 127.0f / largest;
  const auto word = [&](int i) -> int32_t& { return at[i * rows]; };
  if (top >= 0x7f800000u || !(inverse <= std::numeric_limits<float>::max())) {
    for (int i = 0; i < kInt8BlockWords; ++i) word(i) = 0;
    if (top < 0x7f800000u) return;
    word(kInt8Dx) = word(kInt8DxSum) = 0x7fc00000;
    return;
  }
  const auto factor = V::Set(inverse);
  const auto first = V::RoundToInt(V::Mul(a, factor));
  const auto second = V::RoundToInt(V::Mul(b, factor));
  std::byte bytes[32];
  V::StoreBytes(bytes, first);
  V::StoreBytes(bytes + 16, second);
  for (int quad = 0; quad < 8; ++quad) std::memcpy(&word(quad), bytes + 4 * quad, 4);
  const float dx = largest / 127.0f;
  const int32_t sums[2] = {V::ReduceAddInt(first), V::ReduceAddInt(second)};
  word(kInt8Dx) = std::bit_cast<int32_t>(dx);
  word(kInt8DxSum) = std::bit_cast<int32_t>(dx * static_cast<float>(sums[0] + sums[1]));
  word(kInt8Sum) = -(sums[0] + sums[1]);
  if constexpr (V::kDotsInWords) {
    int32_t halves[2];
    V::MinusWordSums(bytes, halves);
    word(kInt8HalfSums) = halves[0];
    word(kInt8HalfSums + 1) = halves[1];
  } else {
    word(kInt8HalfSums) = -sums[0];
    word(kInt8HalfSums + 1) = -sums[1];
  }
}

// Pieces begin … end − 1 of x, a piece being a chunk of K of a tile: piece = chunk · tiles + tile.
template <class V>
void Quantise(const LinearJob& job, int piece_begin, int piece_end, int32_t* out) {
  const Int8Tiles rows(job.rows, V::kInt8DirectRows, V::kInt8TileRows);
  const int64_t k = job.weight->k;
  for (int piece = piece_begin; piece < piece_end; ++piece) {
    const int tile = piece % rows.tiles.count;
    const int64_t begin = int64_t{piece / rows.tiles.count} * kChunk;
    const int64_t end = std::min(k, begin + kChunk);
    const int first = rows.tiles.Begin(tile);
    const int given = rows.tiles.Begin(tile + 1) - first;
    const int count = rows.RowsOf(tile);
    int32_t* to = out + Int8Place(begin, end, rows.padded, first);
    for (int64_t at = begin; at < end; at += kBlock, to += kInt8BlockWords * count) {
      for (int r = 0; r < given; ++r) {
        QuantiseBlock<V>(job.x + (first + r) * job.x_stride + at, count, to + r);
      }
      for (int r = given; r < count; ++r) {
        for (int i = 0; i < kInt8BlockWords; ++i) to[i * count + r] = 0;
      }
    }
  }
}

}  // namespace quire::kernels::cpu
