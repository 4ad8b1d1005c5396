// A model of AMX's tile registers, as Intel's manual writes the instructions. Each fault is one
// that TilesAgree must find.
#pragma once

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/amx_tiles.h"

namespace quire::kernels::test {

enum class TileFault { kNone, kOneChain, kNoFlush, kPanelsSwapped };

template <TileFault kFault = TileFault::kNone>
class ModelTiles {
 public:
  void Load(const cpu::TileConfig& config) {
    if (config.palette != 1 || config.start_row != 0) throw std::logic_error("palette");
    for (int tile = 0; tile < 16; ++tile) {
      const bool beyond = tile >= 8 && (config.rows[tile] != 0 || config.row_bytes[tile] != 0);
      const bool half = (config.rows[tile] == 0) != (config.row_bytes[tile] == 0);
      if (beyond || half || config.rows[tile] > 16 || config.row_bytes[tile] > 64) {
        throw std::logic_error("a tile's size");
      }
    }
    config_ = config;
    std::memset(tiles_, 0, sizeof(tiles_));
  }
  void Release() { config_ = cpu::TileConfig(); }
  template <int kTile>
  void Zero() {
    std::memset(tiles_[Used(kTile)], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  void Read(const void* from, int64_t row_bytes) {
    Zero<kTile>();
    for (int row = 0; row < config_.rows[kTile]; ++row) {
      std::memcpy(tiles_[kTile][row], static_cast<const std::byte*>(from) + row * row_bytes,
                  config_.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void Write(void* to, int64_t row_bytes) const {
    for (int row = 0; row < config_.rows[Used(kTile)]; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * row_bytes, tiles_[kTile][row],
                  config_.row_bytes[kTile]);
    }
  }
  template <int kSum, int kX, int kWeights>
  void Dot() {
    constexpr int kPanel = kFault == TileFault::kPanelsSwapped ? 13 - kWeights : kWeights;
    if (config_.row_bytes[Used(kX)] / 4 != config_.rows[Used(kPanel)]) {
      throw std::logic_error("the depth of a product");
    }
    for (int m = 0; m < config_.rows[Used(kSum)]; ++m) {
      for (int n = 0; n < config_.row_bytes[kSum] / 4; ++n) {
        float parts[2] = {0.0f, 0.0f};
        for (int k = 0; k < config_.row_bytes[kX] / 4; ++k) {
          for (int half = 0; half < 2; ++half) {
            float& part = parts[kFault == TileFault::kOneChain ? 0 : half];
            const float product = Flushed(Element(kX, m, 2 * k + half));
            part = Flushed(std::fma(product, Flushed(Element(kPanel, k, 2 * n + half)), part));
          }
        }
        const float before = Float(kSum, m, n);
        const float sum = Flushed(before + Flushed(parts[0] + parts[1]));
        std::memcpy(&tiles_[kSum][m][4 * n], &sum, 4);
      }
    }
  }

 private:
  static float Flushed(float x) {
    if (kFault == TileFault::kNoFlush) return x;
    return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
  }
  int Used(int tile) const {
    if (config_.rows[tile] == 0) throw std::logic_error("a tile without a size");
    return tile;
  }
  float Element(int tile, int row, int column) const {
    uint16_t bits;
    std::memcpy(&bits, &tiles_[tile][row][2 * column], 2);
    return cpu::BFloatToFloat(bits);
  }
  float Float(int tile, int row, int column) const {
    float value;
    std::memcpy(&value, &tiles_[tile][row][4 * column], 4);
    return value;
  }

  cpu::TileConfig config_;
  std::byte tiles_[8][16][64] = {};
};

}  // namespace quire::kernels::test
