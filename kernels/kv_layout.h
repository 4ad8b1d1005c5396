// The place of every layer's keys and values in the one pool of pages.
//
// Invariants:
// 1. Every page has the same size and fits any cache group: the kind's layers_per_group layers of K
//    and V for block_size tokens and all KV heads of this rank.
// 2. Layers of one kind (full attention, or sliding with one window) are dealt in order into groups
//    of the kind's layers_per_group; the last group of a kind may have unused layer slots
//    (padding).
// 3. Groups of one kind are allocated, published and evicted together.
// 4. A layer slot is [keys][values], each [KV head][tokens][head_dim padded to 16 elements]. A
//    backend may order the elements of a head's tokens as it likes (the CPU's keys are [token /
//    16][dim][16]). fp8 adds [scales of keys][scales of values], each float32 [KV head][token];
//    kv_fp8.h says what an element and a scale mean.
// 5. Where pages hold latents, a slot is [token][head_dim padded to 16 elements] alone, and fp8 has
//    one scale for each token.
// 6. States of recurrent layers are a kind of their own, the last one: state_layout.h.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/state_layout.h"

namespace quire::kernels {

enum class KvType : uint8_t { kF32, kBF16, kF16, kFp8 };

// The largest number in pages of float16, on every device: keys and values above it are stored as
// this number, and NaN stays NaN.
inline constexpr float kF16Largest = 65504.0f;

constexpr int64_t KvElementBytes(KvType type) {
  return type == KvType::kF32 ? 4 : type == KvType::kFp8 ? 1 : 2;
}
// "float32", "bfloat16", "float16", "fp8".
const char* KvTypeName(KvType type);

struct KvLayerPlace {
  int group = 0;  // index into KvLayout::groups
  int slot = 0;   // 0 … layers_per_group − 1
};

struct KvGroup {
  int kind = 0;    // index into KvLayout::kinds
  int layers = 0;  // slots in use
};

struct KvKind {
  int window = 0;  // tokens that a query sees, itself included; 0 is full attention
  int groups = 0;
  int layers_per_group = 0;
  // Of states: one is kept at the end of every so manieth block of a prompt. 0: keys and values.
  int state_interval = 0;
};

// In place of a window: a layer without keys and values of its own.
inline constexpr int kNoKeys = -1;

// What a layer's pages hold for each token, of this rank.
struct KvHeads {
  int kv_heads = 0;
  int head_dim = 0;
};

struct KvLayout {
  int block_size = 16;  // tokens per page
  int kv_heads = 0;     // of this rank
  int head_dim = 0;
  KvType type = KvType::kF32;
  KvHeads full;                      // as in KvShape
  bool latents = false;              // as in KvShape
  int layers_per_group = 0;          // the most of all kinds
  std::vector<KvLayerPlace> layers;  // by attention layer of the model
  std::vector<KvGroup> groups;
  std::vector<KvKind> kinds;  // the full kind, when there is one, comes first
  StateLayout states;
  int64_t page_bytes = 0;  // a multiple of 64
};

struct KvShape {
  int block_size = 16;
  int kv_heads = 0;
  int head_dim = 0;
  KvType type = KvType::kF32;
  // Of layers with full attention, where those with a window have other heads; 0: all are alike.
  KvHeads full = {};
  // One row for each token, which is key and value: kv_heads is 1.
  bool latents = false;
};

// The places of the parts of one layer, in bytes from its slot's begin; slot i of a page begins at
// i · bytes.
struct KvSlot {
  int64_t head_elements = 0;  // of the keys, and of the values, of one head
  int64_t keys = 0;
  int64_t values = 0;
  int64_t key_scales = 0;  // fp8 only
  int64_t value_scales = 0;
  int64_t bytes = 0;
};
KvSlot SlotOf(const KvShape& shape);
// Of the slots of the layer's group.
KvSlot SlotOf(const KvLayout& layout, int layer);

// Deals layers into groups. `windows`: one entry per layer, 0 for full attention, kNoKeys for a
// layer that has none or reads another's. At most two kinds of keys and values are served: full
// and one sliding window. A page holds all layers of the kind that needs less memory for a token,
// and as many of the other kind's as fit, at least one.
KvLayout DealLayers(const std::vector<int>& windows, const KvShape& shape,
                    const std::vector<StateShape>& states = {});

}  // namespace quire::kernels
