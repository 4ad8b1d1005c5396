// How layers are dealt to cache groups.
#include "kernels/kv_layout.h"

#include <gtest/gtest.h>

#include <set>

namespace quire::kernels {
namespace {

TEST(DealLayers, GemmaGivesOneFullGroupAndFiveSlidingOnes) {
  std::vector<int> windows;
  for (int layer = 0; layer < 18; ++layer) windows.push_back(layer % 6 == 5 ? 0 : 512);
  const KvLayout layout = DealLayers(windows, {.block_size = 16, .kv_heads = 1, .head_dim = 256});
  EXPECT_EQ(layout.layers_per_group, 3);
  ASSERT_EQ(layout.kinds.size(), 2u);
  EXPECT_EQ(layout.kinds[0].window, 0);
  EXPECT_EQ(layout.kinds[0].groups, 1);
  EXPECT_EQ(layout.kinds[1].window, 512);
  EXPECT_EQ(layout.kinds[1].groups, 5);
  EXPECT_EQ(layout.groups.size(), 6u);
  EXPECT_EQ(layout.page_bytes, int64_t{3} * 2 * 256 * 16 * 4);
  EXPECT_EQ(layout.layers[5].group, 0);
  EXPECT_EQ(layout.layers[11].slot, 1);
}

TEST(DealLayers, OneKindIsOneGroup) {
  for (const int window : {0, 64}) {
    const KvLayout layout =
        DealLayers({window, window, window}, {.block_size = 32, .kv_heads = 2, .head_dim = 20});
    EXPECT_EQ(layout.groups.size(), 1u);
    EXPECT_EQ(layout.layers_per_group, 3);
    EXPECT_EQ(layout.page_bytes, int64_t{3} * 2 * 2 * 32 * 32 * 4);
  }
}

// Pages are as large as the kind needs that takes less for a token.
TEST(DealLayers, FullLayersMayHaveOtherHeads) {
  const std::vector<int> windows = {8, 8, 8, 8, 8, 0, 8, 8, 8, 8, 8, 0, kNoKeys};
  const KvLayout layout = DealLayers(
      windows,
      {.block_size = 16, .kv_heads = 4, .head_dim = 32, .full = {.kv_heads = 1, .head_dim = 64}});
  const int64_t sliding = int64_t{2} * 4 * 32 * 16 * 4;
  const int64_t full = int64_t{2} * 64 * 16 * 4;
  EXPECT_EQ(SlotOf(layout, 0).bytes, sliding);
  EXPECT_EQ(SlotOf(layout, 5).bytes, full);
  EXPECT_EQ(layout.page_bytes, sliding) << "the two full layers take the half of one sliding one";
  EXPECT_EQ(layout.kinds[0].layers_per_group, 2);
  EXPECT_EQ(layout.kinds[0].groups, 1);
  EXPECT_EQ(layout.kinds[1].layers_per_group, 1);
  EXPECT_EQ(layout.kinds[1].groups, 10);
  EXPECT_EQ(layout.layers[11].slot, 1);
  // Where full layers take more, several sliding ones share a page.
  const KvLayout other = DealLayers(
      windows,
      {.block_size = 16, .kv_heads = 1, .head_dim = 32, .full = {.kv_heads = 1, .head_dim = 64}});
  EXPECT_EQ(other.page_bytes, 2 * full);
  EXPECT_EQ(other.kinds[1].layers_per_group, 4);
  EXPECT_EQ(other.kinds[1].groups, 3);
}

TEST(DealLayers, TheLastGroupOfAKindMayBePadded) {
  const KvLayout layout = DealLayers({8, 0, 8, 0, 8}, {.kv_heads = 1, .head_dim = 16});
  EXPECT_EQ(layout.layers_per_group, 2);
  ASSERT_EQ(layout.groups.size(), 3u);
  EXPECT_EQ(layout.groups[0].kind, 0);
  EXPECT_EQ(layout.groups[2].layers, 1);
  std::set<std::pair<int, int>> places;
  for (const KvLayerPlace& place : layout.layers) places.insert({place.group, place.slot});
  EXPECT_EQ(places.size(), 5u);
}

TEST(DealLayers, SmallerTypesTakeTheirShareAndFp8ItsScales) {
  KvShape shape{.block_size = 16, .kv_heads = 2, .head_dim = 72};  // padded to 80
  const int64_t elements = int64_t{2} * 80 * 16;
  const auto page_of = [&](KvType type) {
    shape.type = type;
    return DealLayers({0, 0, 0}, shape).page_bytes;
  };
  EXPECT_EQ(page_of(KvType::kF32), 3 * 2 * elements * 4);
  EXPECT_EQ(page_of(KvType::kBF16), 3 * 2 * elements * 2);
  EXPECT_EQ(page_of(KvType::kF16), 3 * 2 * elements * 2);
  EXPECT_EQ(page_of(KvType::kFp8), 3 * 2 * (elements + 2 * 16 * 4));
  const KvSlot slot = SlotOf(shape);  // fp8
  EXPECT_EQ(slot.head_elements, 80 * 16);
  EXPECT_EQ(slot.keys, 0);
  EXPECT_EQ(slot.values, elements);
  EXPECT_EQ(slot.key_scales, 2 * elements);
  EXPECT_EQ(slot.value_scales, 2 * elements + 2 * 16 * 4);
  EXPECT_EQ(slot.bytes * 3, page_of(KvType::kFp8));
}

TEST(DealLayers, StatesAreTheLastKindAndShareThePool) {
  const StateShape state{.channels = 100, .taps = 4, .heads = 3, .key_dim = 16, .value_dim = 24};
  const KvLayout layout = DealLayers(
      {kNoKeys, 0, kNoKeys}, {.block_size = 16, .kv_heads = 1, .head_dim = 16}, {state, state});
  ASSERT_EQ(layout.kinds.size(), 2u);
  EXPECT_EQ(layout.kinds[0].groups, 1);
  EXPECT_EQ(layout.kinds[1].window, 17);
  EXPECT_EQ(layout.kinds[1].groups, layout.states.groups);
  EXPECT_EQ(layout.states.first_group, 1);
  EXPECT_EQ(layout.groups.size(), 1u + static_cast<size_t>(layout.states.groups));
  EXPECT_EQ(layout.page_bytes, 2048);  // a matrix of 16 · 32 numbers, as much as keys and values
  EXPECT_EQ(layout.kinds[1].state_interval, 8 * layout.states.groups);
  // No unit lies across a border, and no two at one place.
  std::set<std::pair<int, int64_t>> taken;
  for (const StateLayout::Layer& layer : layout.states.layers) {
    for (const auto& [part, units] : {std::pair{layer.inputs, 2}, std::pair{layer.matrices, 3}}) {
      for (int unit = 0; unit < units; ++unit) {
        const StatePart::Place place = part.PlaceOf(unit);
        EXPECT_LT(place.group, layout.states.groups);
        EXPECT_LE(place.offset + part.unit_bytes, layout.page_bytes);
        for (int64_t at = place.offset; at < place.offset + part.unit_bytes; at += 64) {
          EXPECT_TRUE(taken.insert({place.group, at}).second);
        }
      }
    }
  }
  EXPECT_EQ(layout.states.bytes, 64 * static_cast<int64_t>(taken.size()));
}

TEST(DealLayers, NoLayersNoPages) { EXPECT_EQ(DealLayers({}, {}).page_bytes, 0); }

}  // namespace
}  // namespace quire::kernels
