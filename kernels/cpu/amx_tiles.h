// Blocks of AMX's class on tile registers (linear_amx.h has the rule of the sums).
//
// Tiles is the register file: Load(config), Release(), and for constant numbers of tiles Zero,
// Read, Write and Dot, which are the instructions LDTILECFG, TILERELEASE, TILEZERO, TILELOADD,
// TILESTORED and TDPBF16PS. The processor's is in kernels_amx.cc, a model of it in the tests.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/cpu/amx_numbers.h"
#include "kernels/cpu/linear_amx.h"

namespace quire::kernels::cpu {

// The memory that LDTILECFG reads: rows and bytes of a row for each of eight tiles.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0 … 3 are sums (rows 0 … 15 with both panels, then the rest), 4 and 5 x, 6 and 7 weights.
template <class V, class Tiles>
class TileUnit {
 public:
  TileUnit() = default;
  ~TileUnit() {
    if (rows_ > 0) tiles_.Release();
  }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  void Multiply(const AmxBlock& block) {
    if (block.rows <= kAmxVectorRows) return MultiplyVectors<V>(block);
    Configure(block.rows);
    if (block.rows > kAmxTileRows) return MultiplyTiles<true>(block);
    MultiplyTiles<false>(block);
  }

 private:
  void Configure(int rows) {
    if (rows == rows_) return;
    rows_ = rows;
    const auto low = static_cast<uint8_t>(std::min(rows, kAmxTileRows));
    const auto high = static_cast<uint8_t>(rows - low);
    TileConfig config;
    const uint8_t counts[8] = {low, low, high, high, low, high, 16, 16};
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = counts[tile];
      config.row_bytes[tile] = counts[tile] > 0 ? 64 : 0;
    }
    tiles_.Load(config);
  }

  template <bool kBoth>
  void MultiplyTiles(const AmxBlock& block) {
    constexpr int kTotalBytes = 32 * 4;
    float* const high = block.totals + kAmxTileRows * 32;
    const uint16_t* const high_x = block.x + kAmxTileRows * block.x_stride;
    const int64_t x_bytes = 2 * block.x_stride;
    if (block.first) {
      tiles_.template Zero<0>();
      tiles_.template Zero<1>();
      if constexpr (kBoth) tiles_.template Zero<2>();
      if constexpr (kBoth) tiles_.template Zero<3>();
    } else {
      tiles_.template Read<0>(block.totals, kTotalBytes);
      tiles_.template Read<1>(block.totals + 16, kTotalBytes);
      if constexpr (kBoth) tiles_.template Read<2>(high, kTotalBytes);
      if constexpr (kBoth) tiles_.template Read<3>(high + 16, kTotalBytes);
    }
    for (int64_t i = 0; i < block.blocks; ++i) {
      tiles_.template Read<6>(block.weights[0] + i * 1024, 64);
      tiles_.template Read<7>(block.weights[1] + i * 1024, 64);
      tiles_.template Read<4>(block.x + i * kAmxBlock, x_bytes);
      tiles_.template Dot<0, 4, 6>();
      tiles_.template Dot<1, 4, 7>();
      if constexpr (kBoth) {
        tiles_.template Read<5>(high_x + i * kAmxBlock, x_bytes);
        tiles_.template Dot<2, 5, 6>();
        tiles_.template Dot<3, 5, 7>();
      }
    }
    tiles_.template Write<0>(block.totals, kTotalBytes);
    tiles_.template Write<1>(block.totals + 16, kTotalBytes);
    if constexpr (kBoth) tiles_.template Write<2>(high, kTotalBytes);
    if constexpr (kBoth) tiles_.template Write<3>(high + 16, kTotalBytes);
  }

  Tiles tiles_;
  int rows_ = 0;  // that the tiles are configured for
};

// Whether tiles give the bits of vectors. No container: this is compiled for AMX (amx_numbers.h).
template <class V, class Tiles>
bool TilesAgree(const AmxNumbers& numbers) {
  for (const int rows : {kAmxVectorRows + 1, kAmxTileRows, kAmxTileRows + 1, kAmxRows}) {
    float totals[2][kAmxRows * 32] = {};
    AmxBlock block;
    block.x = numbers.x;
    block.x_stride = AmxNumbers::kColumns;
    block.rows = rows;
    block.blocks = AmxNumbers::kColumns / kAmxBlock;
    block.first = false;
    block.weights[0] = reinterpret_cast<const std::byte*>(numbers.weights[0]);
    block.weights[1] = reinterpret_cast<const std::byte*>(numbers.weights[1]);
    block.totals = totals[0];
    TileUnit<V, Tiles>().Multiply(block);
    block.totals = totals[1];
    MultiplyVectors<V>(block);
    const auto* tiles = reinterpret_cast<const std::byte*>(totals[0]);
    const auto* vectors = reinterpret_cast<const std::byte*>(totals[1]);
    if (std::memcmp(tiles, vectors, sizeof(totals[0])) != 0) return false;
  }
  return true;
}

}  // namespace quire::kernels::cpu
