#include "kernels/kv_layout.h"

#include <algorithm>

namespace quire::kernels {
namespace {

// States that are kept along a prompt take at most this part of the memory of its keys and values.
constexpr int kStateShare = 8;

constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// The kind of a window, in the order full, sliding; a new one when it has not been seen.
int KindOf(std::vector<KvKind>& kinds, int window) {
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].window == window) return static_cast<int>(i);
  }
  KvKind kind;
  kind.window = window;
  kinds.push_back(kind);
  return static_cast<int>(kinds.size()) - 1;
}

KvShape ShapeOfKind(KvShape shape, const KvKind& kind) {
  if (kind.window == 0 && shape.full.kv_heads > 0) {
    shape.kv_heads = shape.full.kv_heads;
    shape.head_dim = shape.full.head_dim;
  }
  return shape;
}

// How large a page is, and how many layers of each kind it holds; `counts` are all there are.
void FillPages(const KvShape& shape, const std::vector<int>& counts, KvLayout& layout) {
  std::vector<int64_t> slots;
  int64_t page = 0;
  for (size_t kind = 0; kind < counts.size(); ++kind) {
    slots.push_back(SlotOf(ShapeOfKind(shape, layout.kinds[kind])).bytes);
    const int64_t all = counts[kind] * slots.back();
    page = kind == 0 ? all : std::min(page, all);
  }
  page = std::max(page, *std::max_element(slots.begin(), slots.end()));
  for (size_t kind = 0; kind < counts.size(); ++kind) {
    const auto fitting = static_cast<int>(page / slots[kind]);
    layout.kinds[kind].layers_per_group = std::min(fitting, counts[kind]);
    layout.layers_per_group =
        std::max(layout.layers_per_group, layout.kinds[kind].layers_per_group);
  }
  layout.page_bytes = RoundUp(page, 64);
}

// A query sees the state at the end of the last full block before it, and the one that it writes.
void AddStates(const std::vector<StateShape>& states, KvLayout& layout) {
  layout.page_bytes = std::max(layout.page_bytes, LargestStateUnit(states));
  layout.states = PlaceStates(states, layout.page_bytes);
  layout.states.kind = static_cast<int>(layout.kinds.size());
  layout.states.first_group = static_cast<int>(layout.groups.size());
  const int groups = layout.states.groups;
  const int beside = layout.kinds.empty() ? 1 : layout.kinds.front().groups;
  layout.kinds.push_back({.window = layout.block_size + 1,
                          .groups = groups,
                          .state_interval = (kStateShare * groups + beside - 1) / beside});
  layout.groups.resize(layout.groups.size() + static_cast<size_t>(groups),
                       {.kind = layout.states.kind, .layers = 0});
}

}  // namespace

const char* KvTypeName(KvType type) {
  constexpr const char* kNames[] = {"float32", "bfloat16", "float16", "fp8"};
  return kNames[static_cast<int>(type)];
}

// Rows of keys and values are padded to 16 elements, so that a kernel reads whole vectors.
KvSlot SlotOf(const KvShape& shape) {
  KvSlot slot;
  slot.head_elements = RoundUp(shape.head_dim, 16) * shape.block_size;
  const int64_t half = shape.kv_heads * slot.head_elements * KvElementBytes(shape.type);
  const int64_t scales =
      shape.type == KvType::kFp8 ? int64_t{shape.kv_heads} * shape.block_size * 4 : 0;
  // Latents are key and value at once.
  slot.values = shape.latents ? 0 : half;
  slot.key_scales = slot.values + half;
  slot.value_scales = slot.key_scales + (shape.latents ? 0 : scales);
  slot.bytes = slot.value_scales + scales;
  return slot;
}

KvSlot SlotOf(const KvLayout& layout, int layer) {
  const KvKind& kind = layout.kinds[layout.groups[layout.layers[layer].group].kind];
  return SlotOf(ShapeOfKind({layout.block_size, layout.kv_heads, layout.head_dim, layout.type,
                             layout.full, layout.latents},
                            kind));
}

KvLayout DealLayers(const std::vector<int>& windows, const KvShape& shape,
                    const std::vector<StateShape>& states) {
  KvLayout layout;
  layout.block_size = shape.block_size;
  layout.kv_heads = shape.kv_heads;
  layout.head_dim = shape.head_dim;
  layout.type = shape.type;
  layout.full = shape.full;
  layout.latents = shape.latents;
  if (windows.empty() && states.empty()) return layout;

  if (std::find(windows.begin(), windows.end(), 0) != windows.end()) KindOf(layout.kinds, 0);
  std::vector<int> counts;
  for (int window : windows) {
    if (window == kNoKeys) continue;
    const int kind = KindOf(layout.kinds, window);
    counts.resize(layout.kinds.size());
    ++counts[kind];
  }
  if (!counts.empty()) FillPages(shape, counts, layout);

  layout.layers.resize(windows.size());
  for (size_t kind = 0; kind < layout.kinds.size(); ++kind) {
    int dealt = 0;
    for (size_t layer = 0; layer < windows.size(); ++layer) {
      if (windows[layer] != layout.kinds[kind].window) continue;
      if (dealt % layout.kinds[kind].layers_per_group == 0) {
        layout.groups.push_back(KvGroup{.kind = static_cast<int>(kind), .layers = 0});
        ++layout.kinds[kind].groups;
      }
      KvGroup& group = layout.groups.back();
      layout.layers[layer] = {static_cast<int>(layout.groups.size()) - 1, group.layers++};
      ++dealt;
    }
  }
  if (!states.empty()) AddStates(states, layout);
  return layout;
}

}  // namespace quire::kernels
