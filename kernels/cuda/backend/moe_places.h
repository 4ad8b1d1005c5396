// Where a mixture of experts keeps what it makes of a slice of tokens, in the memory that all
// mixtures share.
//
// Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/ops/moe/route.h"

namespace quire::kernels::cuda {

// The most tokens that a mixture takes at a time: a longer step runs it in slices.
inline constexpr int kMoeTokens = 2048;

// Shared by all mixtures of a program, which run one after another.
struct MoeMemory {
  std::byte* bytes = nullptr;
  uint32_t* counters = nullptr;  // of routing
};

struct MoeShape {
  int experts = 0;
  int chosen = 0;
  int width = 0;
  int up = 0;     // rows of an expert's first matrix
  int inner = 0;  // columns of its second
};

// Bytes from the beginning. Pairs: kernels/cuda/ops/moe/route.h.
struct MoePlaces {
  size_t logits = 0;      // [tokens, experts] float32
  size_t chosen = 0;      // [pairs] ids
  size_t weights = 0;     // [pairs] float32
  size_t pairs = 0;       // [pairs] by expert
  size_t tiles = 0;       // ExpertTile
  size_t tile_count = 0;  // a word
  size_t inner = 0;       // [pairs, inner] bfloat16
  // [pairs, up] bfloat16; once these have been activated, [pairs, width] float32: what experts
  // make.
  size_t rows = 0;
  size_t bytes = 0;

  MoePlaces(const MoeShape& shape, int tokens) {
    const auto count = static_cast<size_t>(tokens) * static_cast<size_t>(shape.chosen);
    // Narrow tiles are for few pairs: fewer than two for each expert beside those that are full.
    const size_t tiles_at_most =
        std::min(count, 2 * static_cast<size_t>(shape.experts) + count / 128);
    logits = Take(4 * static_cast<size_t>(tokens) * static_cast<size_t>(shape.experts));
    chosen = Take(4 * count);
    weights = Take(4 * count);
    pairs = Take(4 * count);
    tiles = Take(sizeof(ExpertTile) * tiles_at_most);
    tile_count = Take(4);
    inner = Take(2 * count * static_cast<size_t>(shape.inner));
    rows = Take(count *
                std::max(2 * static_cast<size_t>(shape.up), 4 * static_cast<size_t>(shape.width)));
  }

 private:
  size_t Take(size_t taken) {
    constexpr size_t kAlignment = 256;
    const size_t at = bytes;
    bytes += (taken + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
};

}  // namespace quire::kernels::cuda
