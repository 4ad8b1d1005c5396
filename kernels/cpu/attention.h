// Paged attention: the same sums in prefill and decode.
//
// Keys are scored in tiles of 64 and spans of 512, both aligned to position 0. A span starts with a
// fresh maximum, sum and output; spans are merged in ascending order. A key outside a query's
// causal window adds nothing: what its slot holds, be it NaN, is never multiplied. FlashAttention's
// online softmax (Dao et al., 2022), with the order of every sum fixed by the absolute key
// position.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/vec_math.h"

namespace quire::kernels::cpu {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// (maximum, sum by lane, output) of every query row. Rows are tokens × heads of the group,
// token-major.
struct AttentionSums {
  float* maximum = nullptr;  // [rows]
  float* sum = nullptr;      // [rows][16]
  float* out = nullptr;      // [rows][padded dim]
};

// What one task works on; pointers into its scratch.
struct AttentionFrame {
  const AttentionJob* job = nullptr;
  const AttentionTask* task = nullptr;
  const BatchRow* row = nullptr;
  int group = 1;
  int rows = 0;
  int64_t dim = 0;  // padded
  int first_position = 0;
  float* queries = nullptr;     // tiles of [dim][rows of the tile]
  float* scores = nullptr;      // [rows][64]
  float* correction = nullptr;  // [rows]
  float* wide_keys = nullptr;   // [64 keys] widened from bfloat16
  float* wide_values = nullptr;
  AttentionSums span;
  AttentionSums all;
  const float* key_panels[4] = {};          // [dim][16] each
  const float* value_rows[kTileKeys] = {};  // [dim] each

  int Position(int r) const { return first_position + r / group; }
  int FirstKey(int r) const {
    return job->window > 0 ? std::max(0, Position(r) - job->window + 1) : 0;
  }
  int EndKey(int r) const { return Position(r) + 1; }
};

template <class V>
void SetUpFrame(AttentionFrame& f, const AttentionJob& job, const AttentionTask& task,
                float* scratch) {
  f.job = &job;
  f.task = &task;
  f.row = &job.rows[task.row];
  f.group = job.heads / job.kv_heads;
  f.rows = (task.token_end - task.token_begin) * f.group;
  f.dim = PaddedDim(job.head_dim);
  f.first_position = f.row->first_position + task.token_begin;
  auto take = [&scratch](int64_t floats) {
    float* p = scratch;
    scratch += (floats + 15) / 16 * 16;
    return p;
  };
  f.queries = take(f.rows * f.dim);
  f.span.out = take(f.rows * f.dim);
  f.all.out = take(f.rows * f.dim);
  f.wide_keys = take(kTileKeys * f.dim);
  f.wide_values = take(kTileKeys * f.dim);
  f.scores = take(f.rows * kTileKeys);
  f.span.sum = take(f.rows * 16);
  f.all.sum = take(f.rows * 16);
  f.span.maximum = take(f.rows);
  f.all.maximum = take(f.rows);
  f.correction = take(f.rows);

  const RowTiles tiles(f.rows, V::kTileRows);
  for (int tile = 0; tile < tiles.count; ++tile) {
    const int begin = tiles.Begin(tile);
    const int count = tiles.Begin(tile + 1) - begin;
    for (int r = 0; r < count; ++r) {
      const int token = f.row->first_token + task.token_begin + (begin + r) / f.group;
      const int head = task.kv_head * f.group + (begin + r) % f.group;
      const float* q = job.qkv + token * job.stride + head * job.head_dim;
      float* to = f.queries + begin * f.dim + r;
      for (int d = 0; d < job.head_dim; ++d) to[d * count] = q[d];
    }
  }
}

template <class V>
void Reset(const AttentionFrame& f, const AttentionSums& sums) {
  std::fill(sums.maximum, sums.maximum + f.rows, kMinusInfinity);
  std::fill(sums.sum, sums.sum + f.rows * 16, 0.0f);
  std::fill(sums.out, sums.out + f.rows * f.dim, 0.0f);
}

// Points at the keys and values of the tile's slots that lie in [begin, end), widening them if need
// be.
template <class V>
void FindKeys(AttentionFrame& f, int tile_key, int begin, int end) {
  const LayerPages& pages = f.job->pages;
  const auto table = f.row->block_tables[pages.group];
  const int64_t head = f.task->kv_head * pages.head_elements;
  for (int panel = 0; panel < kTileKeys / 16; ++panel) {
    const int key = tile_key + 16 * panel;
    if (key + 16 <= begin || key >= end) continue;
    const std::byte* page = pages.pool + table[key / pages.block_size] * pages.page_bytes;
    const int slot = key % pages.block_size;
    const int64_t offset = head + slot * f.dim;
    if (pages.type == KvType::kF32) {
      f.key_panels[panel] = reinterpret_cast<const float*>(page + pages.key_offset) + offset;
      const float* values = reinterpret_cast<const float*>(page + pages.value_offset) + offset;
      for (int i = 0; i < 16; ++i) f.value_rows[16 * panel + i] = values + i * f.dim;
      continue;
    }
    float* keys = f.wide_keys + 16 * panel * f.dim;
    float* values = f.wide_values + 16 * panel * f.dim;
    for (int64_t i = 0; i < 16 * f.dim; i += 16) {
      V::Store(keys + i, V::LoadBFloat(page + pages.key_offset + 2 * (offset + i)));
      V::Store(values + i, V::LoadBFloat(page + pages.value_offset + 2 * (offset + i)));
    }
    f.key_panels[panel] = keys;
    for (int i = 0; i < 16; ++i) f.value_rows[16 * panel + i] = values + i * f.dim;
  }
}

// scores[row][key] = q · k for two panels of 16 keys, one fma chain over the head.
template <class V, int kRows>
void ScorePanels(const AttentionFrame& f, const float* queries, int panel_a, int panel_b,
                 float* scores) {
  typename V::F acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = V::Zero();
  const float* keys[2] = {f.key_panels[panel_a], f.key_panels[panel_b]};
  MultiplyTile<V, kRows, 2, XLayout<kRows, 1>>(
      acc, queries, f.job->head_dim, [&](int d, int p) __attribute__((always_inline)) {
        return V::Load(keys[p] + d * 16);
      });
  for (int r = 0; r < kRows; ++r) {
    V::Store(scores + r * kTileKeys + 16 * panel_a, acc[r][0]);
    V::Store(scores + r * kTileKeys + 16 * panel_b, acc[r][1]);
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
      for (int panel = first; panel <= last; panel += 2) {
        ScorePanels<V, decltype(count)::value>(f, f.queries + row * f.dim, panel,
                                               std::min(panel + 1, last),
                                               f.scores + row * kTileKeys);
      }
    });
  }
}

// Turns the scores of one row into weights relative to the new maximum; keys outside [begin, end)
// of the tile weigh nothing. Returns by what the row's sums so far must be multiplied.
template <class V>
float WeighRow(const AttentionFrame& f, float* scores, int begin, int end, float& maximum,
               float* sum) {
  using F = typename V::F;
  F s[4];
  F top = V::Set(kMinusInfinity);
  for (int p = 0; p < 4; ++p) {
    s[p] = V::Mul(V::Load(scores + 16 * p), V::Set(f.job->scale));
    if (f.job->softcap > 0.0f) s[p] = SoftCap<V>(s[p], f.job->softcap);
    s[p] = V::KeepRange(s[p], begin - 16 * p, end - 16 * p, kMinusInfinity);
    top = V::Max(s[p], top);
  }
  const float tile_maximum = V::ReduceMax(top);
  const float fresh = tile_maximum > maximum ? tile_maximum : maximum;
  const F centre = V::Set(fresh);
  const F correction = Exp<V>(V::Sub(V::Set(maximum), centre));
  F total = V::Mul(V::Load(sum), correction);
  for (int p = 0; p < 4; ++p) {
    const F weight = Exp<V>(V::Sub(s[p], centre));
    V::Store(scores + 16 * p, weight);
    total = V::Add(total, weight);
  }
  V::Store(sum, total);
  maximum = fresh;
  float lanes[16];
  V::Store(lanes, correction);
  return lanes[0];
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
  int64_t dim = 0;
  for (; dim + 32 <= f.dim; dim += 32) AddValues<V, kRows, 2>(f, row, dim, begin, end);
  if (dim < f.dim) AddValues<V, kRows, 1>(f, row, dim, begin, end);
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
    f.correction[row + r] = WeighRow<V>(f, f.scores + (row + r) * kTileKeys, lows[r], highs[r],
                                        f.span.maximum[row + r], f.span.sum + (row + r) * 16);
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

// Adds a span's sums to those of the spans before it.
template <class V>
void MergeSpan(const AttentionFrame& f) {
  for (int r = 0; r < f.rows; ++r) {
    const float a = f.all.maximum[r];
    const float b = f.span.maximum[r];
    if (b == kMinusInfinity) continue;
    const float top = a > b ? a : b;
    const auto keep = Exp<V>(V::Sub(V::Set(a), V::Set(top)));
    const auto take = Exp<V>(V::Sub(V::Set(b), V::Set(top)));
    float* sum = f.all.sum + 16 * r;
    V::Store(sum, V::Fma(V::Load(f.span.sum + 16 * r), take, V::Mul(V::Load(sum), keep)));
    float* out = f.all.out + r * f.dim;
    const float* from = f.span.out + r * f.dim;
    for (int64_t d = 0; d < f.dim; d += 16) {
      V::Store(out + d, V::Fma(V::Load(from + d), take, V::Mul(V::Load(out + d), keep)));
    }
    f.all.maximum[r] = top;
  }
}

template <class V>
void WriteOut(const AttentionFrame& f) {
  for (int r = 0; r < f.rows; ++r) {
    const int token = f.row->first_token + f.task->token_begin + r / f.group;
    const int head = f.task->kv_head * f.group + r % f.group;
    float* out = f.job->out + token * f.job->out_stride + head * f.job->head_dim;
    const auto sum = V::Set(V::ReduceAdd(V::Load(f.all.sum + 16 * r)));
    for (int d = 0; d < f.job->head_dim; d += 16) {
      StoreUpTo<V>(out + d, V::Div(V::Load(f.all.out + r * f.dim + d), sum), f.job->head_dim - d);
    }
  }
}

template <class V>
void Attend(const AttentionJob& job, const AttentionTask& task, float* scratch) {
  AttentionFrame f;
  SetUpFrame<V>(f, job, task, scratch);
  const int begin = f.FirstKey(0);
  const int end = f.EndKey(f.rows - 1);
  const RowTiles tiles(f.rows, V::kTileRows);
  Reset<V>(f, f.all);
  for (int span = begin / kSpanKeys; span * kSpanKeys < end; ++span) {
    Reset<V>(f, f.span);
    const int span_end = std::min(end, (span + 1) * kSpanKeys);
    int key = std::max(begin, span * kSpanKeys) / kTileKeys * kTileKeys;
    for (; key < span_end; key += kTileKeys) {
      FindKeys<V>(f, key, begin, end);
      ScoreTile<V>(f, key, begin, end);
      for (int tile = 0; tile < tiles.count; ++tile) {
        AddTile<V>(f, key, tiles.Begin(tile), tiles.Begin(tile + 1) - tiles.Begin(tile));
      }
    }
    MergeSpan<V>(f);
  }
  WriteOut<V>(f);
}

}  // namespace quire::kernels::cpu
