// Products of many rows: a chunk of K of two panels is read, or decoded into L1, once, and register
// tiles of rows walk over it.
#pragma once

#include <cstdint>

#include "kernels/cpu/decode.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/tile.h"

namespace quire::kernels::cpu {

// One chunk of K for the rows of one tile and both panels ([k][16] each): totals[row][32] = or +=
// the chunk's sums.
template <class V, int kRows>
void TileChunk(const float* x, const float* const (&weights)[2], int count, bool first,
               float* totals) {
  constexpr int kPanels = V::kTilePanels;
  for (int panel = 0; panel < 2; panel += kPanels) {
    const float* const from[2] = {weights[panel], weights[panel + kPanels - 1]};
    typename V::F acc[kRows][kPanels];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) acc[r][p] = V::Zero();
    }
    MultiplyTile<V, kRows, kPanels, XLayout<kRows, 1>>(
        acc, x, count, [&](int k, int p) __attribute__((always_inline)) {
          return V::Load(from[p] + k * 16);
        });
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) {
        float* total = totals + r * 32 + (panel + p) * 16;
        V::Store(total, first ? acc[r][p] : V::Add(V::Load(total), acc[r][p]));
      }
    }
  }
}

// The weights of a chunk of a panel as floats: where they lie, or decoded into `scratch`.
template <class V>
const float* ChunkWeights(const PackedMatrix& w, const Panel& panel, int64_t begin, int64_t end,
                          float* scratch) {
  const PanelGeometry& geometry = w.geometries[panel.geometry];
  if (geometry.type == DType::kF32) {
    return reinterpret_cast<const float*>(panel.data) + 16 * begin;
  }
  DecodeAny<V>(panel.data, geometry, begin, end, scratch);
  return scratch;
}

// Fetches what follows a chunk of a panel into L2, a part of it before each tile. The next panel
// follows the last chunk.
class ChunkAhead {
 public:
  ChunkAhead(const PackedMatrix& w, const Panel& panel, int64_t end, int tiles) {
    const int64_t bytes = w.geometries[panel.geometry].bytes;
    at_ = panel.data + bytes * end / w.k;
    bytes_ = (bytes * kChunk / w.k / tiles + 63) / 64 * 64;
  }
  void Fetch() {
    for (const std::byte* end = at_ + bytes_; at_ < end; at_ += 64) __builtin_prefetch(at_, 0, 2);
  }

 private:
  const std::byte* at_;
  int64_t bytes_;
};

// Sums of the rows of a pass, into the scratch behind the weights.
template <class V>
void TiledUnit(const LinearJob& job, const Panel& a, const Panel& b, const TilePass& pass,
               float* scratch) {
  const PackedMatrix& w = *job.weight;
  const RowTiles& tiles = pass.tiles;
  float* totals = scratch + 2 * 16 * kChunk;
  for (int64_t begin = 0; begin < w.k; begin += kChunk) {
    const int64_t end = std::min<int64_t>(w.k, begin + kChunk);
    const float* const weights[2] = {ChunkWeights<V>(w, a, begin, end, scratch),
                                     ChunkWeights<V>(w, b, begin, end, scratch + 16 * kChunk)};
    ChunkAhead ahead[2] = {{w, a, end, pass.end - pass.begin}, {w, b, end, pass.end - pass.begin}};
    for (int tile = pass.begin; tile < pass.end; ++tile) {
      const int first = tiles.Begin(tile);
      const int rows = tiles.Begin(tile + 1) - first;
      const float* x = job.x_tiles + first * w.k + begin * rows;
      for (ChunkAhead& one : ahead) one.Fetch();
      WithRows<V::kTileRows>(rows, [&](auto count) {
        TileChunk<V, decltype(count)::value>(x, weights, static_cast<int>(end - begin), begin == 0,
                                             totals + (first - pass.BeginRow()) * 32);
      });
    }
  }
}

}  // namespace quire::kernels::cpu
