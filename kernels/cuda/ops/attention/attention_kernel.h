// The kernel of attention: the spans of keys that a block runs, and how their results meet.
#pragma once

#include "kernels/cuda/ops/attention/attention_block.h"

namespace quire::kernels::cuda {

// One block per tile and KV head runs the spans in order (tiles of 64 rows), or one per span, and
// the last to arrive merges (`apart`, tiles of sixteen rows).
template <class Block>
QUIRE_DEVICE void RunAttention(const AttentionParams& params, const bool apart) {
  const Block block(params);
  if (block.queries <= 0 && block.tile.first_query > 0) return;  // a part of a tile without rows
  constexpr int kTiles = kAttentionSpan / kAttentionKeys;
  const int first_tile = block.first_key / kAttentionKeys;
  const int last_tile = block.last_key / kAttentionKeys;
  const int first_span = first_tile / kTiles;
  const int last_span = last_tile / kTiles;
  const int spans = last_span - first_span + 1;
  if (apart && BlockZ() >= spans) return;
  block.CopyQueries();
  AsyncCommit();
  const RowKeys keys = block.KeysOfRows();
  const size_t place = static_cast<size_t>(BlockX()) * GridY() + BlockY();
  const size_t slot = place * GridZ() + BlockZ();
  typename Block::Rows rows;
  typename Block::Rows total;  // of the spans before, where registers hold two outputs
  const int begin = apart ? first_span + BlockZ() : first_span;
  const int end = apart ? begin : last_span;
  for (int span = begin; span <= end; ++span) {
    const int first = span * kTiles;
    const int last = first + kTiles - 1;
    block.RunSpan(first > first_tile ? first : first_tile, last < last_tile ? last : last_tile,
                  keys, rows);
    if (apart) continue;
    if (span == begin) block.AddSinks(rows);
    if (Block::kKeepsTotal) {
      if (span > begin) rows.template Merge<true>(total);
      total = rows;
    } else {  // the result of earlier spans waits in the workspace
      if (span > begin) rows.template Merge<true>(block.Saved(slot, 0));
      if (span < end) rows.Store(block.Workspace(slot));
    }
  }
  if (apart && spans > 1) {
    rows.Store(block.Workspace(slot));
    auto* flag = Shared<uint32_t>(Block::kSharedBytes - 16);
    if (!LastToArrive(params.counters + place, static_cast<uint32_t>(spans), flag)) return;
    block.MergeAndTurn(place * GridZ(), spans);
  } else {
    if (apart) block.AddSinks(rows);
    block.Turn(rows, 0);
  }
  block.WriteRows();
}

template <int kHeadDim, int kWarps, KvType kType>
QUIRE_DEVICE void Attention(const AttentionParams& params) {
  RunAttention<AttentionBlock<kHeadDim, kWarps, kType>>(params, kWarps == 1);
}

}  // namespace quire::kernels::cuda
