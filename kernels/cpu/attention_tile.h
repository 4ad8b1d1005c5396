// One tile of 64 keys: scores, weights relative to a running maximum, weighted values.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention_frame.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/vec_math.h"

namespace quire::kernels::cpu {

// scores[row][key] = q · k for kPanels panels of 16 keys from `panel` on, one fma chain over the
// head.
template <class V, int kRows, int kPanels>
void ScorePanels(const AttentionFrame& f, const float* queries, int panel, float* scores) {
  typename V::F acc[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) acc[r][p] = V::Zero();
  }
  const float* const* keys = f.key_panels + panel;
  MultiplyTile<V, kRows, kPanels, XLayout<kRows, 1>>(
      acc, queries, f.job->head_dim, [&](int d, int p) __attribute__((always_inline)) {
        return V::Load(keys[p] + d * 16);
      });
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      V::Store(scores + r * kTileKeys + 16 * (panel + p), acc[r][p]);
    }
  }
}

template <class V>
void ScoreTile(const AttentionFrame& f, int tile_key, int begin, int end) {
  const int first = std::max(0, (begin - tile_key) / 16);
  const int last = std::min(3, (end - 1 - tile_key) / 16);
  const RowTiles tiles(f.rows, V::kTileRows);
  for (int tile = 0; tile < tiles.count; ++tile) {
    const int row = tiles.Begin(tile);
    WithRows<V::kTileRows>(tiles.Begin(tile + 1) - row, [&](auto count) {
      constexpr int kRows = decltype(count)::value;
      const float* queries = f.queries + row * f.dim;
      float* scores = f.scores + row * kTileKeys;
      int panel = first;
      for (; panel + V::kTilePanels <= last + 1; panel += V::kTilePanels) {
        ScorePanels<V, kRows, V::kTilePanels>(f, queries, panel, scores);
      }
      for (; panel <= last; ++panel) ScorePanels<V, kRows, 1>(f, queries, panel, scores);
    });
  }
}

// Turns the scores of one row into weights relative to the new maximum; keys outside [begin, end)
// of the tile have weight 0. Returns the factor for the row's output so far.
template <class V>
void WeighRow(const AttentionFrame& f, int row, int begin, int end) {
  using F = typename V::F;
  float* scores = f.scores + row * kTileKeys;
  F s[4];
  F top = V::Set(kMinusInfinity);
  for (int p = 0; p < 4; ++p) {
    s[p] = V::Mul(V::Load(scores + 16 * p), V::Set(f.job->scale));
    if (f.job->softcap > 0.0f) s[p] = SoftCap<V>(s[p], f.job->softcap);
    s[p] = V::KeepRange(s[p], begin - 16 * p, end - 16 * p, kMinusInfinity);
    top = V::Max(s[p], top);
  }
  const float before = f.span.maximum[row];
  const float tile_maximum = V::ReduceMax(top);
  const float fresh = tile_maximum > before ? tile_maximum : before;
  const F centre = V::Set(fresh);
  const F correction = Exp<V>(V::Sub(V::Set(before), centre));
  float* sum = f.span.sum + row * 16;
  F total = V::Mul(V::Load(sum), correction);
  for (int p = 0; p < 4; ++p) {
    const F weight = Exp<V>(V::Sub(s[p], centre));
    V::Store(scores + 16 * p, weight);
    total = V::Add(total, weight);
  }
  V::Store(sum, total);
  f.span.maximum[row] = fresh;
  float lanes[16];
  V::Store(lanes, correction);
  f.correction[row] = lanes[0];
}

// out[row][dims of kPanels panels] = out · correction + Σ weight · value over keys [begin, end).
template <class V, int kRows, int kPanels>
void AddValues(const AttentionFrame& f, int row, int64_t dim, int begin, int end) {
  typename V::F acc[kRows][kPanels];
  float* out = f.span.out + row * f.dim + dim;
  for (int r = 0; r < kRows; ++r) {
    const auto correction = V::Set(f.correction[row + r]);
    for (int p = 0; p < kPanels; ++p) {
      acc[r][p] = V::Mul(V::Load(out + r * f.dim + 16 * p), correction);
    }
  }
  const float* const* values = f.value_rows + begin;
  MultiplyTile<V, kRows, kPanels, XLayout<1, kTileKeys>>(
      acc, f.scores + row * kTileKeys + begin,
      end - begin, [&](int key, int p) __attribute__((always_inline)) {
        return V::Load(values[key] + dim + 16 * p);
      });
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) V::Store(out + r * f.dim + 16 * p, acc[r][p]);
  }
}

template <class V, int kRows>
void AddAllValues(const AttentionFrame& f, int row, int begin, int end) {
  constexpr int kPanels = V::kTilePanels;
  int64_t dim = 0;
  for (; dim + 16 * kPanels <= f.value_dim; dim += 16 * kPanels) {
    AddValues<V, kRows, kPanels>(f, row, dim, begin, end);
  }
  for (; dim < f.value_dim; dim += 16) AddValues<V, kRows, 1>(f, row, dim, begin, end);
}

// Rows of one register tile whose queries see the same keys go together; at the edges of the causal
// window rows go one by one, with the same sums.
template <class V>
void AddTile(AttentionFrame& f, int tile_key, int row, int count) {
  int lows[V::kTileRows];
  int highs[V::kTileRows];
  bool same = true;
  for (int r = 0; r < count; ++r) {
    lows[r] = std::max(0, f.FirstKey(row + r) - tile_key);
    highs[r] = std::min(kTileKeys, f.EndKey(row + r) - tile_key);
    same = same && lows[r] == lows[0] && highs[r] == highs[0];
    if (lows[r] >= highs[r]) continue;
    WeighRow<V>(f, row + r, lows[r], highs[r]);
  }
  if (same) {
    if (lows[0] >= highs[0]) return;
    WithRows<V::kTileRows>(count, [&](auto rows) {
      AddAllValues<V, decltype(rows)::value>(f, row, lows[0], highs[0]);
    });
    return;
  }
  for (int r = 0; r < count; ++r) {
    if (lows[r] < highs[r]) AddAllValues<V, 1>(f, row + r, lows[r], highs[r]);
  }
}

}  // namespace quire::kernels::cpu
