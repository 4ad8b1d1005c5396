// Where the keys and values of every layer lie in the one pool of pages.
//
// Invariants:
// 1. Every page has the same size and fits any cache group: layers_per_group layers of K and V for
//    block_size tokens and all KV heads of this rank.
// 2. Layers of one kind (full attention, or sliding with one window) are dealt in order into groups
// of
//    layers_per_group; the last group of a kind may have unused layer slots (padding).
// 3. Groups of one kind are allocated, published and evicted together.
#pragma once

#include <cstdint>
#include <vector>

namespace quire::kernels {

enum class KvType : uint8_t { kF32, kBF16 };

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
};

struct KvLayout {
  int block_size = 16;  // tokens per page
  int kv_heads = 0;     // of this rank
  int head_dim = 0;
  KvType type = KvType::kF32;
  int layers_per_group = 0;
  std::vector<KvLayerPlace> layers;  // by attention layer of the model
  std::vector<KvGroup> groups;
  std::vector<KvKind> kinds;  // the full kind, when there is one, comes first
  int64_t page_bytes = 0;     // a multiple of 64
};

struct KvShape {
  int block_size = 16;
  int kv_heads = 0;
  int head_dim = 0;
  KvType type = KvType::kF32;
};

// Deals layers into groups. `windows`: one entry per attention layer, 0 for full attention. At most
// two kinds are served: full and one sliding window. layers_per_group is the layer count of the
// smaller kind, or of the only one.
KvLayout DealLayers(const std::vector<int>& windows, const KvShape& shape);

}  // namespace quire::kernels
