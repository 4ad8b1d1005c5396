#include "common/slab.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace quire {
namespace {

struct Thing {
  explicit Thing(int n) : number(n) { ++living; }
  ~Thing() { --living; }
  alignas(64) int number;
  char rest[700] = {};
  static int living;
};
int Thing::living = 0;

TEST(SlabTest, ObjectsLieSideBySideAndKeepTheirAddresses) {
  Slab<Thing> slab;
  std::vector<Slab<Thing>::Owned> things;
  for (int i = 0; i < 1000; ++i) things.push_back(slab.Make(i));
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(things[i]->number, i);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(things[i].get()) % 64, 0u);
    EXPECT_EQ(things[i].get(), things[0].get() + i);
  }
}

TEST(SlabTest, PlacesAreUsedAgainAndItsMemoryIsThatOfTheMostThatLivedAtOnce) {
  Slab<Thing> slab;
  EXPECT_EQ(slab.capacity(), 0u);
  std::mt19937 rng(3);
  std::deque<Slab<Thing>::Owned> things;
  things.push_back(slab.Make(0));
  const size_t chunk = slab.capacity();
  EXPECT_EQ(chunk, (size_t{2} << 20) / sizeof(Thing));
  for (int i = 1; i < 50'000; ++i) {
    if (things.size() < chunk) things.push_back(slab.Make(i));
    if (rng() % 3 == 0) things.erase(things.begin() + rng() % things.size());
    if (i % 20'000 == 0) things.clear();
  }
  while (things.size() < chunk) things.push_back(slab.Make(0));
  EXPECT_EQ(slab.capacity(), chunk) << "at the limit";
  std::set<const Thing*> places;
  for (const auto& thing : things) places.insert(thing.get());
  EXPECT_EQ(places.size(), chunk);
  things.push_back(slab.Make(1));
  EXPECT_EQ(slab.capacity(), 2 * chunk) << "one more";
  EXPECT_EQ(slab.living(), chunk + 1);
  things.clear();
  EXPECT_EQ(slab.living(), 0u);
  EXPECT_EQ(Thing::living, 0);
}

TEST(SlabDeathTest, AnObjectThatOutlivesItIsFound) {
  const auto leave = [] {
    auto slab = std::make_unique<Slab<Thing>>();
    auto thing = slab->Make(1);
    slab.reset();
  };
  EXPECT_DEATH(leave(), "outlives its slab");
}

#if defined(__SANITIZE_ADDRESS__)
TEST(SlabDeathTest, AReadOfWhatHasEndedIsFound) {
  Slab<Thing> slab;
  const Thing* const gone = slab.Make(7).get();
  EXPECT_DEATH(EXPECT_EQ(gone->number, 7), "use-after-poison");
}
#endif

}  // namespace
}  // namespace quire
