// The data of one KV head of an attention task: its queries, its running sums, and the places of a
// tile's keys.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/stored_kv.h"

namespace quire::kernels::cpu {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// (maximum, sum by lane, output) of every query row. Rows are tokens × heads of the group,
// token-major.
struct AttentionSums {
  float* maximum = nullptr;  // [rows]
  float* sum = nullptr;      // [rows][16]
  float* out = nullptr;      // [rows][padded dim]
};

// Pointers into the scratch of the task.
struct AttentionFrame {
  const AttentionJob* job = nullptr;
  const AttentionTask* task = nullptr;
  const BatchRow* row = nullptr;
  int kv_head = 0;
  int group = 1;
  int rows = 0;
  int64_t dim = 0;        // padded
  int64_t value_dim = 0;  // of a result, padded
  int first_position = 0;
  float* queries = nullptr;     // tiles of [dim][rows of the tile]
  float* scores = nullptr;      // [rows][64]
  float* correction = nullptr;  // [rows]
  float* wide_keys = nullptr;   // [64 keys] widened from the pages
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

// Pieces of the scratch, each of whole lines.
struct ScratchPieces {
  float* next = nullptr;
  float* Take(int64_t floats) {
    float* piece = next;
    next += (floats + 15) / 16 * 16;
    return piece;
  }
};

template <class V>
void SetUpFrame(AttentionFrame& f, const AttentionJob& job, const AttentionTask& task, int kv_head,
                ScratchPieces& scratch) {
  f.job = &job;
  f.task = &task;
  f.row = &job.rows[task.row];
  f.kv_head = kv_head;
  f.group = job.heads / job.kv_heads;
  f.rows = (task.token_end - task.token_begin) * f.group;
  f.dim = PaddedDim(job.head_dim);
  f.value_dim = PaddedDim(job.value_dim);
  f.first_position = f.row->first_position + task.token_begin;
  f.queries = scratch.Take(f.rows * f.dim);
  f.span.out = scratch.Take(f.rows * f.dim);
  f.all.out = scratch.Take(f.rows * f.dim);
  f.scores = scratch.Take(f.rows * kTileKeys);
  f.span.sum = scratch.Take(f.rows * 16);
  f.all.sum = scratch.Take(f.rows * 16);
  f.span.maximum = scratch.Take(f.rows);
  f.all.maximum = scratch.Take(f.rows);
  f.correction = scratch.Take(f.rows);

  const RowTiles tiles(f.rows, V::kTileRows);
  for (int tile = 0; tile < tiles.count; ++tile) {
    const int begin = tiles.Begin(tile);
    const int count = tiles.Begin(tile + 1) - begin;
    for (int r = 0; r < count; ++r) {
      const int token = f.row->first_token + task.token_begin + (begin + r) / f.group;
      const int head = kv_head * f.group + (begin + r) % f.group;
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

// The keys ([dim][16]) and values ([16][dim]) of sixteen slots of a page, as floats.
template <class V, KvType kType>
void WidenPanel(const AttentionFrame& f, const std::byte* page, int slot, float* keys,
                float* values) {
  constexpr int kBytes = KvElementBytes(kType);
  constexpr bool kScaled = kType == KvType::kFp8;
  const LayerPages& pages = f.job->pages;
  const int head = f.kv_head;
  const int64_t offset = (head * pages.head_elements + slot * f.dim) * kBytes;
  const std::byte* from_keys = page + pages.key_offset + offset;
  const std::byte* from_values = page + pages.value_offset + offset;
  const int64_t scale = 4 * (int64_t{head} * pages.block_size + slot);
  const auto* key_scales = reinterpret_cast<const float*>(page + pages.key_scale_offset + scale);
  const auto* value_scales =
      reinterpret_cast<const float*>(page + pages.value_scale_offset + scale);
  const auto key_scale = kScaled ? V::Load(key_scales) : V::Zero();
  for (int64_t i = 0; i < 16 * f.dim; i += 16) {
    auto key = LoadStored<V, kType>(from_keys + i * kBytes);
    auto value = LoadStored<V, kType>(from_values + i * kBytes);
    if constexpr (kScaled) {
      key = V::Mul(key, key_scale);
      value = V::Mul(value, V::Set(value_scales[i / f.dim]));
    }
    V::Store(keys + i, key);
    V::Store(values + i, value);
  }
}

// Fetches the keys and values of the tile's slots before `end` into L2: their panels are in pages
// far from each other, so that the hardware does not see them coming.
template <class V>
void PrefetchKeys(const AttentionFrame& f, int tile_key, int end) {
  const LayerPages& pages = f.job->pages;
  const auto table = f.row->block_tables[pages.group];
  const int64_t bytes = KvElementBytes(pages.type);
  for (int key = tile_key; key < std::min(end, tile_key + kTileKeys); key += 16) {
    const int64_t offset = f.kv_head * pages.head_elements + key % pages.block_size * f.dim;
    const std::byte* page =
        pages.pool + table[key / pages.block_size] * pages.page_bytes + offset * bytes;
    for (int64_t line = 0; line < 16 * f.dim * bytes; line += 64) {
      __builtin_prefetch(page + pages.key_offset + line, 0, 2);
      __builtin_prefetch(page + pages.value_offset + line, 0, 2);
    }
  }
}

// Points to the keys and values of the tile's slots in [begin, end), and widens them if necessary.
template <class V>
void FindKeys(AttentionFrame& f, int tile_key, int begin, int end) {
  const LayerPages& pages = f.job->pages;
  const auto table = f.row->block_tables[pages.group];
  const int64_t head = f.kv_head * pages.head_elements;
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
    WithKvType(pages.type, [&](auto type) {
      WidenPanel<V, decltype(type)::value>(f, page, slot, keys, values);
    });
    f.key_panels[panel] = keys;
    for (int i = 0; i < 16; ++i) f.value_rows[16 * panel + i] = values + i * f.dim;
  }
}

}  // namespace quire::kernels::cpu
