// Attention of few rows, as in decode: a key is read once or twice, so keys and values go from
// their page into the sums without a copy in between, and every line of the next tile is fetched
// amid the arithmetic of this one. Sums and bits equal those of attention_tile.h.
//
// A tile's 256 lines (float16, heads of 64) fetched at once fill the queue of outstanding reads.
#pragma once

#include <algorithm>

#include "kernels/cpu/attention_frame.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/page_tile.h"
#include "kernels/cpu/tile.h"

namespace quire::kernels::cpu {

constexpr int kMostPageTiles = 2;  // register tiles of rows that read pages
constexpr int kLineBytes = 64;

// Register tiles wide enough that the chains of few rows hide an fma's latency.
template <class V, int kRows>
constexpr int PanelsBeside() {
  const int wanted = 4 * V::kTilePanels / kRows;
  return wanted >= 4 ? 4 : wanted >= 2 ? 2 : 1;
}

// scores[row][key] = q · k for the sixteens of keys from `panel` on, one fma chain over the head.
template <class V, KvType kType, int kRows, int kPanels, bool kFetch>
void ScorePages(const AttentionFrame& f, const PageStep& step, int row, int panel) {
  constexpr int kBytes = 16 * KvElementBytes(kType);  // of sixteen keys' elements
  constexpr int kStep = std::max(1, kLineBytes / kBytes);
  using F = typename V::F;
  F acc[kRows][kPanels], scale[kPanels];
  for (int p = 0; p < kPanels; ++p) {
    for (int r = 0; r < kRows; ++r) acc[r][p] = V::Zero();
    if constexpr (kType == KvType::kFp8) scale[p] = V::Load(step.tile.key_scales[panel + p]);
  }
  const float* queries = f.queries + row * f.dim;
  float* scores = f.scores + row * kTileKeys;
  const std::byte* const* keys = step.tile.keys + panel;
  const auto multiply = [&](int d, int count) __attribute__((always_inline)) {
    MultiplyTile<V, kRows, kPanels, XLayout<kRows, 1>>(
        acc, queries + d * kRows, count, [&](int k, int p) __attribute__((always_inline)) {
          const F key = LoadStored<V, kType>(keys[p] + (d + k) * kBytes);
          if constexpr (kType == KvType::kFp8) return V::Mul(key, scale[p]);
          return key;
        });
  };
  int d = 0;
  for (; d + kStep <= f.job->head_dim; d += kStep) {
    if constexpr (kFetch) {
      for (int p = 0; p < kPanels; ++p) {
        __builtin_prefetch(step.next.keys[panel + p] + d * kBytes, 0, 2);
      }
    }
    multiply(d, kStep);
  }
  multiply(d, f.job->head_dim - d);
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      V::Store(scores + r * kTileKeys + 16 * (panel + p), acc[r][p]);
    }
  }
}

// Rows of the task that see the keys [begin, end) of a tile, and no others of it.
struct PageRows {
  int row;
  int begin;
  int end;
};

// out[row][dims of kPanels panels] = out · correction + Σ weight · value over the rows' keys.
template <class V, KvType kType, int kRows, int kPanels, bool kFetch>
void AddPages(const AttentionFrame& f, const PageStep& step, const PageRows& rows, int64_t dim) {
  constexpr int kBytes = KvElementBytes(kType);
  using F = typename V::F;
  F acc[kRows][kPanels];
  float* out = f.span.out + rows.row * f.dim + dim;
  for (int r = 0; r < kRows; ++r) {
    const F correction = V::Set(f.correction[rows.row + r]);
    for (int p = 0; p < kPanels; ++p) {
      acc[r][p] = V::Mul(V::Load(out + r * f.dim + 16 * p), correction);
    }
  }
  const int64_t stride = f.dim * kBytes;
  for (int key = rows.begin; key < rows.end;) {
    const int panel = key / 16;
    const int count = std::min(rows.end, 16 * panel + 16) - key;
    const int64_t first = key % 16 * stride + dim * kBytes;
    const std::byte* values = step.tile.values[panel] + first;
    const std::byte* ahead = step.next.values[panel] + first;
    const float* scales = step.tile.value_scales[panel] + key % 16;
    MultiplyTile<V, kRows, kPanels, XLayout<1, kTileKeys>>(
        acc, f.scores + rows.row * kTileKeys + key,
        count, [&](int k, int p) __attribute__((always_inline)) {
          if constexpr (kFetch) {
            if (16 * p * kBytes % kLineBytes == 0) {
              __builtin_prefetch(ahead + k * stride + 16 * p * kBytes, 0, 2);
            }
          }
          const F value = LoadStored<V, kType>(values + k * stride + 16 * p * kBytes);
          if constexpr (kType == KvType::kFp8) return V::Mul(value, V::Set(scales[k]));
          return value;
        });
    key += count;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) V::Store(out + r * f.dim + 16 * p, acc[r][p]);
  }
}

template <class V, KvType kType, int kRows, bool kFetch>
void AddAllPages(const AttentionFrame& f, const PageStep& step, const PageRows& rows) {
  constexpr int kPanels = PanelsBeside<V, kRows>();
  constexpr int kBytes = KvElementBytes(kType);
  int64_t dim = 0;
  for (; dim + 16 * kPanels <= f.value_dim; dim += 16 * kPanels) {
    constexpr auto kPlain = &AddPages<V, kType, kRows, kPanels, false>;
    constexpr auto kFetching = &AddPages<V, kType, kRows, kPanels, kFetch>;
    const bool begins_line = dim * kBytes % kLineBytes == 0;
    (begins_line ? kFetching : kPlain)(f, step, rows, dim);
  }
  for (; dim < f.value_dim; dim += 16) {
    AddPages<V, kType, kRows, 1, false>(f, step, rows, dim);
  }
}

// The tile's keys for the kRows rows of a register tile from `row` on; kFetch: the next tile is
// fetched.
template <class V, KvType kType, int kRows, bool kFetch>
void AddPageTile(AttentionFrame& f, const PageStep& step, int row) {
  constexpr int kPanels = PanelsBeside<V, kRows>();
  const int last = std::min(kTilePages - 1, (step.end - 1 - step.key) / 16);
  int panel = std::max(0, (step.begin - step.key) / 16);
  for (; panel + kPanels <= last + 1; panel += kPanels) {
    ScorePages<V, kType, kRows, kPanels, kFetch>(f, step, row, panel);
  }
  for (; panel <= last; ++panel) ScorePages<V, kType, kRows, 1, kFetch>(f, step, row, panel);
  PageRows rows[kRows];
  bool same = true;
  for (int r = 0; r < kRows; ++r) {
    rows[r] = {row + r, std::max(0, f.FirstKey(row + r) - step.key),
               std::min(kTileKeys, f.EndKey(row + r) - step.key)};
    same = same && rows[r].begin == rows[0].begin && rows[r].end == rows[0].end;
    if (rows[r].begin < rows[r].end) WeighRow<V>(f, row + r, rows[r].begin, rows[r].end);
  }
  if (same && rows[0].begin < rows[0].end) {
    AddAllPages<V, kType, kRows, kFetch>(f, step, rows[0]);
  }
  for (int r = 0; !same && r < kRows; ++r) {
    if (rows[r].begin < rows[r].end) AddAllPages<V, kType, 1, false>(f, step, rows[r]);
  }
}

}  // namespace quire::kernels::cpu
