// The steps that a lane's sums of codes are multiplied by.
#pragma once

#include "kernels/cuda/ops/gemm/gemm_tile.h"

namespace quire::kernels::cuda {

QUIRE_DEVICE bool HasCodeGroups(const GemmParams& params) {
  return params.code_groups > 1 || params.quantised.end_groups > 1;
}

// The steps of a lane's weights and tokens for a group of K; 0 outside the matrices.
template <class Tile>
struct CodeSteps {
  float weight[Tile::kRowFragments][2];
  float token[Tile::kOctets][2];
};
template <class Tile>
QUIRE_DEVICE CodeSteps<Tile> CodeStepsOf(const GemmParams& params, int group) {
  const QuantisedWeight& weight = params.quantised;
  const int64_t tiles = (params.k + kGemmDepth - 1) / kGemmDepth;
  const int64_t at = tiles * kByCodesTileBytes + (weight.end_groups == 1 ? 0 : 64 * group);
  const int first_row =
      BlockY() * kGemmRows + WarpIndex() % Tile::kRowWarps * Tile::kRowFragments * 16 + Lane() / 4;
  const int first_token =
      BlockX() * Tile::kTokens + WarpIndex() / Tile::kRowWarps * Tile::kOctets * 8 + Lane() % 4 * 2;
  CodeSteps<Tile> steps;
#pragma unroll
  for (int r = 0; r < Tile::kRowFragments; ++r) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 16 * r + 8 * i;
      steps.weight[r][i] = 0.0f;
      if (row >= params.n) continue;
      const unsigned char* fragment = weight.data + row / 16 * weight.fragment_bytes;
      steps.weight[r][i] = reinterpret_cast<const float*>(fragment + at)[row % 16];
    }
  }
#pragma unroll
  for (int o = 0; o < Tile::kOctets; ++o) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = first_token + 8 * o + i;
      steps.token[o][i] = 0.0f;
      if (token >= params.m) continue;
      steps.token[o][i] = params.code_scales[static_cast<size_t>(token) * params.code_groups +
                                             (params.code_groups == 1 ? 0 : group)];
    }
  }
  return steps;
}

}  // namespace quire::kernels::cuda
