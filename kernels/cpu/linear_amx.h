// Products in the sum order of Intel's TDPBF16PS: activations and weights are rounded to bfloat16,
// and each block of 32 k gives one sum of its even and one of its odd products.
//
// A class of its own. An output is 0 + s₀ + s₁ + …, in the order of K, where block i gives
// sᵢ = e + o; e and o are fma chains from zero over the even and the odd k of the block. Subnormal
// numbers count as zero on the way in and out. This is the operation that Intel's manual states for
// the instruction (Software Developer's Manual, volume 2, TDPBF16PS), so tiles, vectors and the
// reference give the same bits for any number of rows.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/amx_sizes.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/linear.h"

namespace quire::kernels::cpu {

// Some rows against both panels of a unit over some blocks of K.
struct AmxBlock {
  const uint16_t* x = nullptr;  // [rows][x_stride] bfloat16
  int64_t x_stride = 0;         // elements
  int rows = 0;
  const std::byte* weights[2] = {};  // [k / 2][16 columns] pairs of bfloat16, the lower k first
  int blocks = 0;
  bool first = false;       // the sums start from zero
  float* totals = nullptr;  // [rows][32]
};

// What a tile unit does with MXCSR's flags, for vectors: subnormal numbers are zeros.
class SubnormalsAreZero {
 public:
  [[gnu::always_inline]] SubnormalsAreZero() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | 0x8040);
  }
  [[gnu::always_inline]] ~SubnormalsAreZero() { _mm_setcsr(before_); }
  SubnormalsAreZero(const SubnormalsAreZero&) = delete;
  SubnormalsAreZero& operator=(const SubnormalsAreZero&) = delete;

 private:
  const unsigned before_;
};

[[gnu::always_inline]] inline int64_t AmxColumns(int64_t k) {
  return (k + kAmxBlock - 1) / kAmxBlock * kAmxBlock;
}

// x as [row][k of whole blocks] bfloat16; zeros follow the last k.
template <class V>
void PackBFloatRows(const LinearJob& job, int tile_begin, int tile_end, float* out) {
  const RowTiles tiles(job.rows, kAmxTileRows);
  const int64_t k = job.weight->k;
  const int64_t columns = AmxColumns(k);
  auto* const rows = reinterpret_cast<uint16_t*>(out);
  for (int row = tiles.Begin(tile_begin); row < tiles.Begin(tile_end); ++row) {
    const float* from = job.x + row * job.x_stride;
    uint16_t* to = rows + row * columns;
    for (int64_t i = 0; i < k; ++i) to[i] = FloatToBFloat(from[i]);
    std::fill(to + k, to + columns, uint16_t{0});
  }
}

// kRows rows of a block from `row` on, in vectors.
template <class V, int kRows>
[[gnu::noinline]] void AmxVectors(const AmxBlock& block, int row) {
  using F = typename V::F;
  F sums[kRows][2];
  float* const totals = block.totals + row * 32;
  const uint16_t* const x = block.x + row * block.x_stride;
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < 2; ++p) {
      sums[r][p] = block.first ? V::Zero() : V::Load(totals + r * 32 + 16 * p);
    }
  }
  for (int64_t begin = 0; begin < int64_t{block.blocks} * kAmxBlock; begin += kAmxBlock) {
    F even[kRows][2], odd[kRows][2];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < 2; ++p) even[r][p] = odd[r][p] = V::Zero();
    }
    for (int64_t k = begin; k < begin + kAmxBlock; k += 2) {
      for (int p = 0; p < 2; ++p) {
        const F low = ReadFloat<V, DType::kBF16>(block.weights[p], k);
        const F high = ReadFloat<V, DType::kBF16>(block.weights[p], k + 1);
        for (int r = 0; r < kRows; ++r) {
          const uint16_t* const at = x + r * block.x_stride + k;
          even[r][p] = V::Fma(low, V::Set(BFloatToFloat(at[0])), even[r][p]);
          odd[r][p] = V::Fma(high, V::Set(BFloatToFloat(at[1])), odd[r][p]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < 2; ++p) sums[r][p] = V::Add(sums[r][p], V::Add(even[r][p], odd[r][p]));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < 2; ++p) V::Store(totals + r * 32 + 16 * p, sums[r][p]);
  }
}

template <class V>
void MultiplyVectors(const AmxBlock& block) {
  const SubnormalsAreZero flags;
  for (int row = 0; row < block.rows; row += kAmxVectorRows) {
    WithRows<kAmxVectorRows>(std::min(kAmxVectorRows, block.rows - row),
                             [&](auto rows) { AmxVectors<V, decltype(rows)::value>(block, row); });
  }
}

// No tiles: all rows go through vectors.
template <class V>
struct VectorUnit {
  void Multiply(const AmxBlock& block) { MultiplyVectors<V>(block); }
};

struct ChunkRange {
  int64_t begin;
  int64_t end;
};

// A chunk of a panel as pairs of whole blocks, in `out`: rounded, and with zeros behind its last k.
// `wide` takes the chunk as floats.
template <class V>
void RoundPairs(const Panel& panel, const PanelGeometry& g, ChunkRange chunk, float* wide,
                uint32_t* out) {
  DecodeAny<V>(panel.data, g, chunk.begin, chunk.end, wide);
  const int64_t count = chunk.end - chunk.begin;
  const int64_t columns = AmxColumns(count);
  std::fill(wide + 16 * count, wide + 16 * columns, 0.0f);
  for (int64_t pair = 0; pair < columns / 2; ++pair) {
    for (int i = 0; i < 16; ++i) {
      const uint32_t low = FloatToBFloat(wide[32 * pair + i]);
      const uint32_t high = FloatToBFloat(wide[32 * pair + 16 + i]);
      out[16 * pair + i] = low | high << 16;
    }
  }
}

// Unit has Multiply(AmxBlock), with the bits of MultiplyVectors.
template <class V, class Unit>
void LinearAmx(const LinearJob& job, int unit_begin, int unit_end, float* scratch) {
  const PackedMatrix& w = *job.weight;
  const int64_t columns = AmxColumns(w.k);
  float* const totals = scratch + 2 * 16 * kChunk;
  alignas(64) uint32_t pairs[2][16 * kChunk / 2];
  Unit tiles;
  AmxBlock block;
  block.x_stride = columns;
  for (int unit = unit_begin; unit < unit_end; ++unit) {
    const Panel* const panels[2] = {&w.panels[unit], &PartnerOf(w, unit)};
    const PanelGeometry* const geometries[2] = {&w.geometries[panels[0]->geometry],
                                                &w.geometries[panels[1]->geometry]};
    const bool stored = geometries[0]->type == DType::kBF16 && geometries[1]->type == DType::kBF16;
    for (int64_t begin = 0, end = 0; begin < w.k; begin = end) {
      // Weights of bfloat16 are read where they lie, as many whole blocks as there are.
      const int64_t whole = stored ? (w.k - begin) / kAmxBlock * kAmxBlock : 0;
      end = whole > 0 ? begin + whole : std::min<int64_t>(w.k, begin + kChunk);
      for (int p = 0; p < 2; ++p) {
        block.weights[p] = panels[p]->data + begin / 2 * 64;
        if (whole > 0) continue;
        RoundPairs<V>(*panels[p], *geometries[p], {begin, end}, scratch, pairs[p]);
        block.weights[p] = reinterpret_cast<const std::byte*>(pairs[p]);
      }
      block.blocks = static_cast<int>(AmxColumns(end - begin) / kAmxBlock);
      block.first = begin == 0;
      for (int row = 0; row < job.rows; row += kAmxRows) {
        block.rows = std::min(kAmxRows, job.rows - row);
        block.x = reinterpret_cast<const uint16_t*>(job.x_tiles) + row * columns + begin;
        block.totals = totals + 32 * row;
        tiles.Multiply(block);
      }
    }
    FinishRows<V>(job, *panels[0], *panels[1], {0, job.rows}, totals);
  }
}

}  // namespace quire::kernels::cpu
