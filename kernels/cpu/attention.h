// Paged attention: the same sums in prefill and decode.
//
// Keys are scored in tiles of 64 and spans of 512, both aligned to position 0. A span starts with a
// fresh maximum, sum and output; spans are merged in ascending order. A key outside a query's
// causal window adds nothing: the content of its slot, even NaN, is never multiplied.
// FlashAttention's online softmax (Dao et al., 2022), with the order of every sum fixed by the
// absolute key position.
#pragma once

#include <algorithm>
#include <span>

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
    const int head = f.kv_head * f.group + r % f.group;
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
    f.all.maximum[r] = f.job->sinks[f.kv_head * f.group + r % f.group];
    f.all.sum[16 * r] = 1.0f;
  }
}

// Whether so many rows of a head read keys and values from their pages.
template <class V>
bool ReadsPages(const AttentionJob& job, int rows) {
  return RowTiles(rows, V::kTileRows).count <= kMostPageTiles && !job.latents;
}

// Spans and tiles of all keys of the heads; add(key, begin, end) adds the tile of keys from `key`
// on to each of them.
template <class V, class AddTileOf>
void AttendSpans(std::span<const AttentionFrame> heads, AddTileOf&& add) {
  const int begin = heads[0].FirstKey(0);
  const int end = heads[0].EndKey(heads[0].rows - 1);
  for (int span = begin / kSpanKeys; span * kSpanKeys < end; ++span) {
    for (const AttentionFrame& f : heads) Reset<V>(f, f.span);
    const int span_end = std::min(end, (span + 1) * kSpanKeys);
    int key = std::max(begin, span * kSpanKeys) / kTileKeys * kTileKeys;
    for (; key < span_end; key += kTileKeys) add(key, begin, end);
    for (const AttentionFrame& f : heads) MergeSpan<V>(f);
  }
}

// Heads of a tile follow each other: their keys and values lie side by side in the same pages.
template <class V, KvType kType>
void AttendInPages(std::span<AttentionFrame> heads) {
  const RowTiles tiles(heads[0].rows, V::kTileRows);
  PageStep step;
  bool found = false;
  AttendSpans<V>(heads, [&](int key, int begin, int end) {
    step.key = key;
    step.begin = begin;
    step.end = end;
    for (AttentionFrame& f : heads) {
      step.tile = found ? step.next : FindPages<V>(f, key, begin, end);
      found = true;
      if (&f != &heads.back()) {
        step.next = NextHead<V>(f, step.tile);
      } else if (key + kTileKeys < end) {
        step.next = FindPages<V>(heads.front(), key + kTileKeys, begin, end);
      } else {
        step.next = step.tile;  // there is nothing to fetch
      }
      for (int i = 0; i < tiles.count; ++i) {
        const int row = tiles.Begin(i);
        WithRows<V::kTileRows>(tiles.Begin(i + 1) - row, [&](auto rows) {
          constexpr int kRows = decltype(rows)::value;
          if (i == 0) return AddPageTile<V, kType, kRows, true>(f, step, row);
          return AddPageTile<V, kType, kRows, false>(f, step, row);
        });
      }
    }
  });
}

// Keys and values, or latents, are widened once for many rows.
template <class V>
void AttendWidened(AttentionFrame& f, ScratchPieces& scratch) {
  f.wide_keys = scratch.Take(kTileKeys * f.dim);
  f.wide_values = scratch.Take(kTileKeys * f.dim);
  const RowTiles tiles(f.rows, V::kTileRows);
  AttendSpans<V>({&f, 1}, [&](int key, int begin, int end) {
    if (f.job->latents) {
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
}

// Some heads of the task, from `first` on. Those that do not read from pages come alone.
template <class V>
void AttendHeads(const AttentionJob& job, const AttentionTask& task, int first, int count,
                 float* scratch) {
  AttentionFrame frames[kAttentionHeads];
  const std::span<AttentionFrame> heads(frames, static_cast<size_t>(count));
  ScratchPieces pieces{scratch};
  for (AttentionFrame& f : heads) {
    SetUpFrame<V>(f, job, task, first++, pieces);
    Reset<V>(f, f.all);
    BeginWithSinks<V>(f);
  }
  if (ReadsPages<V>(job, frames[0].rows)) {
    WithKvType(job.pages.type, [&](auto type) { AttendInPages<V, decltype(type)::value>(heads); });
  } else {
    AttendWidened<V>(frames[0], pieces);
  }
  for (const AttentionFrame& f : heads) WriteOut<V>(f);
}

template <class V>
void Attend(const AttentionJob& job, const AttentionTask& task, float* scratch) {
  const int rows = (task.token_end - task.token_begin) * (job.heads / job.kv_heads);
  const int together = ReadsPages<V>(job, rows) ? task.kv_heads : 1;
  for (int head = 0; head < task.kv_heads; head += together) {
    AttendHeads<V>(job, task, task.kv_head + head, together, scratch);
  }
}

}  // namespace quire::kernels::cpu
