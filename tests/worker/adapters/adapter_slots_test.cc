// Slots of adapters: which one is chosen, and which never is.
#include <gtest/gtest.h>

#include "worker/adapters/adapter_slots.h"
#include "worker/adapters/adapter_table.h"

namespace quire {
namespace {

AdapterTable TableOf(const std::vector<std::string>& digests, int max_loras) {
  AdapterTable table(max_loras);
  for (const std::string& digest : digests) {
    AdapterInfo info;
    info.name = "of " + digest;
    info.digest = digest;
    table.Add(info);
  }
  return table;
}

TEST(AdapterSlots, NoTableIsNoSlot) {
  const AdapterSlots none(nullptr);
  EXPECT_EQ(none.count(), 0);
  EXPECT_EQ(none.SlotOf("a"), std::nullopt);
  EXPECT_EQ(none.Choose({}, {}, {}), std::nullopt);
}

TEST(AdapterSlots, AFreeOneIsChosenFirst) {
  const AdapterTable table = TableOf({"a", "b"}, 3);
  AdapterSlots slots(&table);
  EXPECT_EQ(slots.count(), 3);
  EXPECT_EQ(slots.SlotOf("b"), 1);
  EXPECT_EQ(slots.SlotOf(""), std::nullopt) << "a free slot holds no adapter";
  EXPECT_EQ(slots.Choose({false, false, false}, {}, {}), 2);
  slots.Put(2, "c", 5);
  EXPECT_EQ(slots.In(2), "c");
  EXPECT_EQ(slots.SlotOf("c"), 2);
}

TEST(AdapterSlots, ThenTheOneThatWasAskedForTheLongestTimeAgo) {
  const AdapterTable table = TableOf({"a", "b", "c"}, 3);
  AdapterSlots slots(&table);
  slots.Touch(0, 30);
  slots.Touch(1, 10);
  slots.Touch(2, 20);
  const std::vector<bool> idle(3);
  EXPECT_EQ(slots.Choose(idle, {}, {}), 1);
  const std::vector<std::string> b = {"b"};
  EXPECT_EQ(slots.Choose(idle, b, {}), 2) << "b is kept";
  EXPECT_EQ(slots.Choose(idle, {}, b), 2) << "b has a name, the others have none";
  EXPECT_EQ(slots.Choose({false, true, true}, {}, {}), 0) << "the others are in use";
  EXPECT_EQ(slots.Choose({true, false, true}, b, {}), std::nullopt);
  EXPECT_EQ(slots.Choose({true, false, true}, {}, b), 1) << "a name alone keeps nothing";
}

}  // namespace
}  // namespace quire
