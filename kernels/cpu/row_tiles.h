// How the rows of a product are cut: into register tiles, and into passes over a unit of weights.
#pragma once

#include <cstdint>

namespace quire::kernels::cpu {

// Rows are distributed evenly over register tiles of at most `tile_rows`.
struct RowTiles {
  int rows = 0;
  int count = 0;
  int least = 0;   // rows of a tile
  int longer = 0;  // the first tiles, which have one row more
  RowTiles(int row_count, int tile_rows)
      : rows(row_count), count((row_count + tile_rows - 1) / tile_rows) {
    if (count == 0) return;
    least = rows / count;
    longer = rows % count;
  }
  // The first row of a tile; `count` gives all rows.
  int Begin(int tile) const { return tile * least + (tile < longer ? tile : longer); }
};

struct RowRange {
  int begin;
  int end;
};

// A unit walks many rows in passes of about this many, so that their x and sums stay in L2.
inline constexpr int kPassRows = 512;

struct TilePass {
  RowTiles tiles;
  int step;
  int begin = 0;  // tiles
  int end;
  TilePass(int rows, int tile_rows)
      : tiles(rows, tile_rows),
        step(kPassRows / tile_rows),
        end(step < tiles.count ? step : tiles.count) {}
  bool More() const { return begin < tiles.count; }
  void Next() {
    begin = end;
    end = begin + step < tiles.count ? begin + step : tiles.count;
  }
  int BeginRow() const { return tiles.Begin(begin); }
  int EndRow() const { return tiles.Begin(end); }
};

}  // namespace quire::kernels::cpu
