// The job of a product of the int8 class: units over all rows.
#pragma once

#include <algorithm>

#include "kernels/cpu/linear_int8.h"

namespace quire::kernels::cpu {

// A chunk of K of two panels, and the rows that it is multiplied with.
struct Int8Piece {
  DType types[2];  // of the panels
  int panel = 0;   // the first that goes into a product now
  int64_t begin = 0;
  int64_t end = 0;
};

// All tiles of a pass over one chunk, for kPanels panels from piece.panel on.
template <class V, int kPanels>
void MultiplyInt8Tiles(const LinearJob& job, const TilePass& pass, const Int8Chunk& chunk,
                       const Int8Piece& piece, float* totals) {
  const RowTiles& tiles = pass.tiles;
  const int blocks = static_cast<int>((piece.end - piece.begin) / kBlock);
  WithInt8Type(piece.types[piece.panel], [&](auto constant) {
    constexpr Int8Form kForm = FormFor<V>(decltype(constant)::value);
    for (int tile = pass.begin, first = pass.BeginRow(); tile < pass.end; ++tile) {
      const int next = tiles.Begin(tile + 1);
      const int32_t* x = job.x_int8 + Int8Place(piece.begin, piece.end, job.rows, first);
      WithRows<V::kInt8TileRows>(next - first, [&](auto count) {
        Int8Tile<V, kForm, decltype(count)::value, kPanels>(
            x, chunk, piece.panel, blocks, totals + (first - pass.BeginRow()) * 32);
      });
      first = next;
    }
  });
}

// Panels of one form go together.
template <class V>
void Int8BothPanels(const LinearJob& job, const TilePass& pass, const Int8Chunk& chunk,
                    Int8Piece piece, float* totals) {
  constexpr int kPanels = V::kInt8TilePanels;
  if (kPanels == 2 && Int8FormOf(piece.types[0]) == Int8FormOf(piece.types[1])) {
    return MultiplyInt8Tiles<V, kPanels>(job, pass, chunk, piece, totals);
  }
  for (; piece.panel < 2; ++piece.panel) {
    MultiplyInt8Tiles<V, 1>(job, pass, chunk, piece, totals);
  }
}

// totals[row][32] of the rows of tiles begin … end − 1.
template <class V>
void Int8TiledUnit(const LinearJob& job, const Panel& a, const Panel& b, const TilePass& pass,
                   float* scratch) {
  const PackedMatrix& w = *job.weight;
  Int8Piece piece{{w.geometries[a.geometry].type, w.geometries[b.geometry].type}};
  const Panel* panels[2] = {&a, &b};
  Int8Chunk chunk(scratch);
  float* totals = scratch + 2 * 16 * kChunk;
  for (; piece.begin < w.k; piece.begin = piece.end) {
    chunk.first = piece.begin == 0;
    piece.end = std::min<int64_t>(w.k, piece.begin + kChunk);
    for (int p = 0; p < 2; ++p) {
      WithInt8Type(piece.types[p], [&](auto type) {
        Int8ReadChunk<V, decltype(type)::value>(panels[p]->data, piece.begin, piece.end, chunk, p);
      });
    }
    Int8BothPanels<V>(job, pass, chunk, piece, totals);
  }
}

template <class V>
void LinearInt8(const LinearJob& job, int unit_begin, int unit_end, float* scratch) {
  const PackedMatrix& w = *job.weight;
  if (!w.takes_int8) return V::FloatKernels().linear(job, unit_begin, unit_end, scratch);
  float* totals = scratch + 2 * 16 * kChunk;
  for (int unit = unit_begin; unit < unit_end; ++unit) {
    const Panel& a = w.panels[unit];
    const Panel& b = PartnerOf(w, unit);
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
