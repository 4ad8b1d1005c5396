// The job of a product of the int8 class: units over all rows.
#pragma once

#include <algorithm>

#include "kernels/cpu/linear_int8.h"

namespace quire::kernels::cpu {

// What a tile is multiplied with.
struct Int8Piece {
  DType types[2];  // of the panels
  int blocks;      // of the chunk
  int rows;
};

// One tile over one chunk, for kPanels panels from `panel` on.
template <class V, int kPanels>
void Int8AnyTile(const int32_t* x, const Int8Chunk& chunk, const Int8Piece& piece, int panel,
                 float* totals) {
  WithInt8Type(SameForm(piece.types[panel]), [&](auto constant) {
    constexpr DType kType = decltype(constant)::value;
    if constexpr (SameForm(kType) == kType) {
      WithRows<V::kInt8TileRows>(piece.rows, [&](auto count) {
        Int8Tile<V, Int8FormOf(kType), decltype(count)::value, kPanels>(x, chunk, panel,
                                                                        piece.blocks, totals);
      });
    }
  });
}

// Panels of one form go together.
template <class V>
void Int8BothPanels(const int32_t* x, const Int8Chunk& chunk, const Int8Piece& piece,
                    float* totals) {
  constexpr int kPanels = V::kInt8TilePanels;
  if (kPanels == 2 && Int8FormOf(piece.types[0]) == Int8FormOf(piece.types[1])) {
    return Int8AnyTile<V, kPanels>(x, chunk, piece, 0, totals);
  }
  for (int panel = 0; panel < 2; ++panel) {
    Int8AnyTile<V, 1>(x, chunk, piece, panel, totals);
  }
}

// totals[row][32] of the rows of tiles begin … end − 1.
template <class V>
void Int8TiledUnit(const LinearJob& job, const Panel& a, const Panel& b, const TilePass& pass,
                   float* scratch) {
  const PackedMatrix& w = *job.weight;
  const RowTiles& tiles = pass.tiles;
  Int8Piece piece{{w.geometries[a.geometry].type, w.geometries[b.geometry].type}, 0, 0};
  const Panel* panels[2] = {&a, &b};
  const Int8Chunk chunk(scratch);
  float* totals = scratch + 2 * 16 * kChunk;
  for (int i = 0; i < 2 * (pass.EndRow() - pass.BeginRow()); ++i) {
    V::Store(totals + 16 * i, V::Zero());
  }
  for (int64_t begin = 0; begin < w.k; begin += kChunk) {
    const int64_t end = std::min<int64_t>(w.k, begin + kChunk);
    for (int p = 0; p < 2; ++p) {
      WithInt8Type(piece.types[p], [&](auto type) {
        Int8ReadChunk<V, decltype(type)::value>(panels[p]->data, begin, end, chunk, p);
      });
    }
    piece.blocks = static_cast<int>((end - begin) / kBlock);
    for (int tile = pass.begin; tile < pass.end; ++tile) {
      const int first = tiles.Begin(tile);
      piece.rows = tiles.Begin(tile + 1) - first;
      Int8BothPanels<V>(job.x_int8 + Int8Place(begin, end, job.rows, first), chunk, piece,
                        totals + (first - pass.BeginRow()) * 32);
    }
  }
}

template <class V>
void LinearInt8(const LinearJob& job, int unit_begin, int unit_end, float* scratch) {
  const PackedMatrix& w = *job.weight;
  if (!w.takes_int8) return V::FloatKernels().linear(job, unit_begin, unit_end, scratch);
  const int count = w.PanelCount();
  const int units = LinearUnits(w);
  float* totals = scratch + 2 * 16 * kChunk;
  for (int unit = unit_begin; unit < unit_end; ++unit) {
    const Panel& a = w.panels[unit];
    const Panel& b = w.panels[unit + units < count ? unit + units : unit];
    if (job.rows <= V::kInt8DirectRows) {
      Unroll<17>([&](auto rows) __attribute__((always_inline)) {
        constexpr int kRows = decltype(rows)::value;
        if constexpr (kRows > 0 && kRows <= V::kInt8DirectRows && DirectRows(kRows) == kRows) {
          if (DirectRows(job.rows) == kRows) Int8DirectUnit<V, kRows>(w, a, b, job.x_int8, totals);
        }
      });
      FinishRows<V>(job, a, b, {0, job.rows}, totals);
      continue;
    }
    for (TilePass pass(job.rows, V::kInt8TileRows); pass.More(); pass.Next()) {
      Int8TiledUnit<V>(job, a, b, pass, scratch);
      FinishRows<V>(job, a, b, {pass.BeginRow(), pass.EndRow()}, totals);
    }
  }
}

// Everything but the products is the float32 class's.
template <class V>
KernelTable Int8Table(const char* name) {
  KernelTable table = V::FloatKernels();
  table.name = name;
  table.linear = LinearInt8<V>;
  table.quantise = Quantise<V>;
  table.int8_tile_rows = V::kInt8TileRows;
  table.int8_direct_rows = V::kInt8DirectRows;
  return table;
}

}  // namespace quire::kernels::cpu
