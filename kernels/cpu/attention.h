// Paged attention: the same sums in prefill and decode.
//
// Keys are scored in tiles of 64 and spans of 512, both aligned to position 0. A span starts with a
// fresh maximum, sum and output; spans are merged in ascending order. A key outside a query's
// causal window adds nothing: the content of its slot, even NaN, is never multiplied.
// FlashAttention's online softmax (Dao et al., 2022), with the order of every sum fixed by the
// absolute key position.
#pragma once

#include <algorithm>

#include "kernels/cpu/attention_frame.h"
#include "kernels/cpu/attention_latents.h"
#include "kernels/cpu/attention_pages.h"
#include "kernels/cpu/attention_tile.h"

namespace quire::kernels::cpu {

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
    for (int64_t d = 0; d < f.value_dim; d += 16) {
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
    float* out = f.job->out + token * f.job->out_stride + head * f.job->value_dim;
    const auto sum = V::Set(V::ReduceAdd(V::Load(f.all.sum + 16 * r)));
    for (int d = 0; d < f.job->value_dim; d += 16) {
      StoreUpTo<V>(out + d, V::Div(V::Load(f.all.out + r * f.dim + d), sum), f.job->value_dim - d);
    }
  }
}

// Spans are merged into the sinks, which are there before the first key.
template <class V>
void BeginWithSinks(const AttentionFrame& f) {
  if (f.job->sinks == nullptr) return;
  for (int r = 0; r < f.rows; ++r) {
    f.all.maximum[r] = f.job->sinks[f.task->kv_head * f.group + r % f.group];
    f.all.sum[16 * r] = 1.0f;
  }
}

// Spans and tiles of all keys; add(key, begin, end) adds the tile of keys from `key` on.
template <class V, class AddTileOf>
void AttendSpans(AttentionFrame& f, AddTileOf&& add) {
  const int begin = f.FirstKey(0);
  const int end = f.EndKey(f.rows - 1);
  for (int span = begin / kSpanKeys; span * kSpanKeys < end; ++span) {
    Reset<V>(f, f.span);
    const int span_end = std::min(end, (span + 1) * kSpanKeys);
    int key = std::max(begin, span * kSpanKeys) / kTileKeys * kTileKeys;
    for (; key < span_end; key += kTileKeys) add(key, begin, end);
    MergeSpan<V>(f);
  }
}

template <class V, KvType kType>
void AttendInPages(AttentionFrame& f) {
  const RowTiles tiles(f.rows, V::kTileRows);
  PageStep step;
  bool found = false;
  AttendSpans<V>(f, [&](int key, int begin, int end) {
    step.tile = found ? step.next : FindPages(f, key, begin, end);
    found = true;
    const bool more = key + kTileKeys < end;
    step.next = more ? FindPages(f, key + kTileKeys, begin, end) : step.tile;
    step.key = key;
    step.begin = begin;
    step.end = end;
    for (int i = 0; i < tiles.count; ++i) {
      const int row = tiles.Begin(i);
      WithRows<V::kTileRows>(tiles.Begin(i + 1) - row, [&](auto rows) {
        constexpr int kRows = decltype(rows)::value;
        if (i == 0) return AddPageTile<V, kType, kRows, true>(f, step, row);
        return AddPageTile<V, kType, kRows, false>(f, step, row);
      });
    }
  });
}

template <class V>
void Attend(const AttentionJob& job, const AttentionTask& task, float* scratch) {
  AttentionFrame f;
  SetUpFrame<V>(f, job, task, scratch);
  Reset<V>(f, f.all);
  BeginWithSinks<V>(f);
  const RowTiles tiles(f.rows, V::kTileRows);
  if (tiles.count <= kMostPageTiles && !job.latents) {
    WithKvType(job.pages.type, [&](auto type) { AttendInPages<V, decltype(type)::value>(f); });
    return WriteOut<V>(f);
  }
  AttendSpans<V>(f, [&](int key, int begin, int end) {
    if (job.latents) {
      PrefetchLatents<V>(f, key + kTileKeys, end);
      FindLatents<V>(f, key, begin, end);
    } else {
      PrefetchKeys<V>(f, key + kTileKeys, end);
      FindKeys<V>(f, key, begin, end);
    }
    ScoreTile<V>(f, key, begin, end);
    for (int tile = 0; tile < tiles.count; ++tile) {
      AddTile<V>(f, key, tiles.Begin(tile), tiles.Begin(tile + 1) - tiles.Begin(tile));
    }
  });
  WriteOut<V>(f);
}

}  // namespace quire::kernels::cpu
