// Keys that are latents: a page has one row for each token, the key of all heads, whose first part
// is also the value of all.
#pragma once

#include "kernels/cpu/attention_frame.h"

namespace quire::kernels::cpu {

// Sixteen rows of a page as floats, [16][dim]: in the page, or widened to `wide`.
template <class V>
const float* LatentRows(const AttentionFrame& f, const std::byte* page, int slot, float* wide) {
  const LayerPages& pages = f.job->pages;
  const std::byte* from = page + pages.value_offset;
  const int64_t first = slot * f.dim;
  if (pages.type == KvType::kF32) return reinterpret_cast<const float*>(from) + first;
  const auto* scales = reinterpret_cast<const float*>(page + pages.value_scale_offset) + slot;
  WithKvType(pages.type, [&](auto type) {
    constexpr KvType kType = decltype(type)::value;
    for (int64_t i = 0; i < 16 * f.dim; i += 16) {
      auto value = LoadStored<V, kType>(from + (first + i) * KvElementBytes(kType));
      if constexpr (kType == KvType::kFp8) value = V::Mul(value, V::Set(scales[i / f.dim]));
      V::Store(wide + i, value);
    }
  });
  return wide;
}

// Points to the rows of the tile's slots in [begin, end), and transposes them for the scores.
template <class V>
void FindLatents(AttentionFrame& f, int tile_key, int begin, int end) {
  const LayerPages& pages = f.job->pages;
  const auto table = f.row->block_tables[pages.group];
  for (int panel = 0; panel < kTileKeys / 16; ++panel) {
    const int key = tile_key + 16 * panel;
    if (key + 16 <= begin || key >= end) continue;
    const std::byte* page = pages.pool + table[key / pages.block_size] * pages.page_bytes;
    const float* rows =
        LatentRows<V>(f, page, key % pages.block_size, f.wide_values + 16 * panel * f.dim);
    float* keys = f.wide_keys + 16 * panel * f.dim;
    for (int64_t d = 0; d < f.dim; d += 16) V::Transpose(rows + d, f.dim, keys + 16 * d);
    f.key_panels[panel] = keys;
    for (int i = 0; i < 16; ++i) f.value_rows[16 * panel + i] = rows + i * f.dim;
  }
}

// As PrefetchKeys does.
template <class V>
void PrefetchLatents(const AttentionFrame& f, int tile_key, int end) {
  const LayerPages& pages = f.job->pages;
  const auto table = f.row->block_tables[pages.group];
  const int64_t bytes = KvElementBytes(pages.type);
  for (int key = tile_key; key < std::min(end, tile_key + kTileKeys); key += 16) {
    const std::byte* rows = pages.pool + table[key / pages.block_size] * pages.page_bytes +
                            pages.value_offset + key % pages.block_size * f.dim * bytes;
    for (int64_t line = 0; line < 16 * f.dim * bytes; line += 64) {
      __builtin_prefetch(rows + line, 0, 2);
    }
  }
}

}  // namespace quire::kernels::cpu
