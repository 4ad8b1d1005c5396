// The kernel of attention: the spans of keys that a block runs, and how their results meet.
#pragma once

#include "kernels/cuda/ops/attention/attention_block.h"

namespace quire::kernels::cuda {

// One block per tile and KV head runs the spans in order (kWarps of 4), or one per span, and the
// last to arrive merges (kWarps of 1).
template <int kHeadDim, int kWarps, KvType kType>
QUIRE_DEVICE void Attention(const AttentionParams& params) {
  using Block = AttentionBlock<kHeadDim, kWarps, kType>;
  const Block block(params);
  constexpr bool kApart = kWarps == 1;
  constexpr int kTiles = kAttentionSpan / kAttentionKeys;
  const int first_tile = block.first_key / kAttentionKeys;
  const int last_tile = block.last_key / kAttentionKeys;
  const int first_span = first_tile / kTiles;
  const int last_span = last_tile / kTiles;
  const int spans = last_span - first_span + 1;
  if (kApart && BlockZ() >= spans) return;
  block.CopyQueries();
  AsyncCommit();
  const RowKeys keys = block.KeysOfRows();
  const size_t place = static_cast<size_t>(BlockX()) * GridY() + BlockY();
  typename Block::Rows rows;
  typename Block::Rows total;  // of the spans before, where registers hold two outputs
  const int begin = kApart ? first_span + BlockZ() : first_span;
  const int end = kApart ? begin : last_span;
  for (int span = begin; span <= end; ++span) {
    const int first = span * kTiles;
    const int last = first + kTiles - 1;
    block.RunSpan(first > first_tile ? first : first_tile, last < last_tile ? last : last_tile,
                  keys, rows);
    if (kApart) continue;
    if (span == begin) block.AddSinks(rows);
    if (kHeadDim <= 128) {
      if (span > begin) rows.template Merge<true>(total);
      total = rows;
    } else {  // the result of earlier spans waits in the workspace
      if (span > begin) rows.template Merge<true>(block.Saved(place, 0));
      if (span < end) rows.Store(block.Workspace(place));
    }
  }
  if (kApart && spans > 1) {
    rows.Store(block.Workspace(place * GridZ() + BlockZ()));
    auto* flag = Shared<uint32_t>(Block::kSharedBytes - 16);
    if (!LastToArrive(params.counters + place, static_cast<uint32_t>(spans), flag)) return;
    block.MergeAndTurn(place * GridZ(), spans);
  } else {
    if (kApart) block.AddSinks(rows);
    block.Turn(rows, 0);
  }
  block.WriteRows();
}

}  // namespace quire::kernels::cuda
