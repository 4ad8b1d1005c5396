// Where the keys and values of a tile are in pages, for attention that reads them there.
#pragma once

#include <algorithm>

#include "kernels/cpu/attention_frame.h"

namespace quire::kernels::cpu {

constexpr int kTilePages = kTileKeys / 16;  // runs of sixteen slots

// Where the keys ([dim][16]) and values ([16][dim]) of each sixteen slots of a tile are.
struct PageTile {
  const std::byte* keys[kTilePages];
  const std::byte* values[kTilePages];
  const float* key_scales[kTilePages];  // fp8: of each slot
  const float* value_scales[kTilePages];
};

// One tile of keys of one head, and where the tile is that comes after it.
struct PageStep {
  int key = 0;    // the tile's first
  int begin = 0;  // of all keys that a row of the task sees
  int end = 0;
  PageTile tile;
  PageTile next;
};

// The places of the tile's slots in [begin, end), which holds some of them. Those of others are
// places that may be fetched.
template <class V>
PageTile FindPages(const AttentionFrame& f, int tile_key, int begin, int end) {
  const LayerPages& pages = f.job->pages;
  const auto table = f.row->block_tables[pages.group];
  const int64_t bytes = KvElementBytes(pages.type);
  const int head = f.kv_head;
  PageTile tile;
  for (int panel = 0; panel < kTilePages; ++panel) {
    // The last sixteen keys end within [tile_key, end), the first ones begin within it.
    const int last = std::min(end - 1, tile_key + kTileKeys - 1) / 16 * 16;
    const int first = std::max(begin, tile_key) / 16 * 16;
    const int key = std::clamp(tile_key + 16 * panel, first, last);
    const std::byte* page = pages.pool + table[key / pages.block_size] * pages.page_bytes;
    const int slot = key % pages.block_size;
    const int64_t offset = (head * pages.head_elements + slot * f.dim) * bytes;
    const int64_t scale = 4 * (int64_t{head} * pages.block_size + slot);
    tile.keys[panel] = page + pages.key_offset + offset;
    tile.values[panel] = page + pages.value_offset + offset;
    tile.key_scales[panel] = reinterpret_cast<const float*>(page + pages.key_scale_offset + scale);
    tile.value_scales[panel] =
        reinterpret_cast<const float*>(page + pages.value_scale_offset + scale);
  }
  return tile;
}

// The same slots of the next KV head, which comes after this one in each page.
template <class V>
PageTile NextHead(const AttentionFrame& f, PageTile tile) {
  const LayerPages& pages = f.job->pages;
  const int64_t bytes = pages.head_elements * KvElementBytes(pages.type);
  for (int panel = 0; panel < kTilePages; ++panel) {
    tile.keys[panel] += bytes;
    tile.values[panel] += bytes;
    tile.key_scales[panel] += pages.block_size;
    tile.value_scales[panel] += pages.block_size;
  }
  return tile;
}

}  // namespace quire::kernels::cpu
