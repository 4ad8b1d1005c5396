#include "router/loading/model_shelf.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

using serve::ModelState;
using serve::OrderKind;

// A `quire serve` that does at once what it is told.
struct Shelf {
  explicit Shelf(ShelfLimits limits = {}) : shelf(limits) {
    for (const char* name : {"a", "b", "c", "d"}) Say(name, ModelState::kAbsent);
  }
  void Say(const std::string& name, ModelState state, const std::string& error = "",
           bool no_room = false) {
    serve::ModelNews news;
    news.name = name;
    news.state = state;
    news.error = error;
    news.no_room = no_room;
    shelf.Heard(news, now);
    shelf.CheckInvariants();
  }
  // What it orders now, each done at once: "+a -b".
  std::string Obey() {
    std::string orders;
    while (const auto order = shelf.Next(now)) {
      const bool load = order->kind == OrderKind::kLoad;
      orders += (orders.empty() ? "" : " ") + std::string(load ? "+" : "-") + order->model;
      shelf.CheckInvariants();
      Say(order->model, load ? ModelState::kReady : ModelState::kAbsent);
    }
    return orders;
  }
  std::string LoadFor(const std::string& name) {
    shelf.Wait(name, now);
    return Obey();
  }
  void Begin(const std::string& name) {
    ASSERT_TRUE(shelf.MayBegin(name, now)) << name;
    shelf.Use(name);
    shelf.StopWaiting(name);
  }
  void Run(const std::string& name) {
    LoadFor(name);
    Begin(name);
    shelf.Done(name, now);
  }

  Micros now = kMicrosPerSecond;
  ModelShelf shelf;
};

TEST(ModelShelf, LoadsWhatIsAskedForAndKeepsAtMostSoMany) {
  Shelf world({.max_loaded = 2});
  world.Run("a");
  world.now += kMicrosPerSecond;
  world.Run("b");
  EXPECT_EQ(world.shelf.loaded(), 2u);
  world.now += kMicrosPerSecond;
  EXPECT_EQ(world.LoadFor("c"), "-a +c") << "the one used least recently gives way";
  EXPECT_EQ(world.shelf.loaded(), 2u);
}

TEST(ModelShelf, AModelInUseNeverGivesWay) {
  Shelf world({.max_loaded = 1});
  world.LoadFor("a");
  world.Begin("a");
  EXPECT_EQ(world.LoadFor("b"), "");
  world.now += 100 * kMicrosPerSecond;
  EXPECT_EQ(world.Obey(), "");
  world.shelf.Done("a", world.now);
  EXPECT_EQ(world.Obey(), "-a +b");
  world.Begin("b");
}

TEST(ModelShelf, AModelLoadedForSomebodyStaysUntilTheyHaveBegun) {
  Shelf world({.max_loaded = 1});
  world.LoadFor("a");
  world.shelf.Wait("b", world.now);
  world.now += 100 * kMicrosPerSecond;
  EXPECT_EQ(world.Obey(), "");
  world.Begin("a");
  world.shelf.Done("a", world.now);
  EXPECT_EQ(world.Obey(), "-a +b");
}

TEST(ModelShelf, ABusyModelCannotKeepAnotherOutForEver) {
  Shelf world({.max_loaded = 1});
  world.LoadFor("a");
  world.Begin("a");
  world.shelf.Wait("b", world.now);
  EXPECT_TRUE(world.shelf.MayBegin("a", world.now));
  world.now += ModelShelf::kTurnAfter;
  EXPECT_FALSE(world.shelf.MayBegin("a", world.now)) << "new requests of a wait behind b";
  world.shelf.Wait("a", world.now);
  EXPECT_EQ(world.Obey(), "") << "the request that runs is never cut";
  world.shelf.Done("a", world.now);
  EXPECT_EQ(world.Obey(), "-a +b");
  world.Begin("b");
  world.shelf.Done("b", world.now);
  EXPECT_EQ(world.Obey(), "-b +a") << "and then it is a's turn again";
  world.Begin("a");
}

TEST(ModelShelf, IdleModelsAreUnloadedAfterTheirTime) {
  Shelf world({.keep_alive = 60 * kMicrosPerSecond});
  world.Run("a");
  EXPECT_EQ(world.shelf.NextExpiry(world.now), world.now + 60 * kMicrosPerSecond);
  world.now += 60 * kMicrosPerSecond - 1;
  EXPECT_EQ(world.Obey(), "");
  world.now += 1;
  EXPECT_EQ(world.Obey(), "-a");
  world.Run("b");
  world.shelf.KeepAlive("b", -1, world.now);
  world.now += 1'000'000 * kMicrosPerSecond;
  EXPECT_EQ(world.Obey(), "") << "less than 0 is for ever";
  world.shelf.KeepAlive("b", 0, world.now);
  EXPECT_EQ(world.Obey(), "-b") << "0 is at once";
  world.LoadFor("c");
  world.Begin("c");
  world.shelf.KeepAlive("c", 0, world.now);
  EXPECT_EQ(world.Obey(), "") << "but not under a request";
  world.shelf.Done("c", world.now);
  EXPECT_EQ(world.Obey(), "-c");
}

TEST(ModelShelf, WhatAClientSaysOfTheTimeHoldsUntilTheModelIsUnloaded) {
  Shelf world;
  world.LoadFor("a");
  world.Begin("a");
  world.shelf.KeepAlive("a", 0, world.now);
  EXPECT_EQ(world.Obey(), "") << "it is in use";
  world.shelf.Done("a", world.now);
  EXPECT_EQ(world.Obey(), "-a");
  world.Run("a");
  EXPECT_EQ(world.Obey(), "") << "the next client said nothing";
  world.shelf.KeepAlive("a", -1, world.now);
  EXPECT_EQ(world.shelf.Until(*world.shelf.Find("a")), std::nullopt);
}

TEST(ModelShelf, WithoutRoomAnIdleModelGivesWayAndThenItFits) {
  Shelf world({.max_loaded = 4});
  world.Run("a");
  world.shelf.Wait("b", world.now);
  ASSERT_EQ(world.shelf.Next(world.now)->kind, OrderKind::kLoad);
  world.Say("b", ModelState::kAbsent, "", true);
  EXPECT_EQ(world.Obey(), "-a +b");
}

TEST(ModelShelf, WithoutRoomAndNobodyToGiveWayItFails) {
  Shelf world;
  world.shelf.Wait("b", world.now);
  ASSERT_TRUE(world.shelf.Next(world.now).has_value());
  world.Say("b", ModelState::kAbsent, "", true);
  EXPECT_EQ(world.Obey(), "");
  EXPECT_FALSE(world.shelf.Find("b")->news.error.empty());
  EXPECT_FALSE(world.shelf.Find("b")->wanted);
}

TEST(ModelShelf, AFailureIsNotTriedAgainUntilSomebodyAsks) {
  Shelf world;
  world.shelf.Wait("a", world.now);
  ASSERT_TRUE(world.shelf.Next(world.now).has_value());
  world.Say("a", ModelState::kAbsent, "its files are unusable");
  EXPECT_EQ(world.Obey(), "");
  world.shelf.StopWaiting("a");
  world.shelf.Wait("b", world.now);
  EXPECT_EQ(world.Obey(), "+b") << "others go on";
  EXPECT_EQ(world.LoadFor("a"), "+a");
}

TEST(ModelShelf, KeptModelsGiveWayLast) {
  Shelf world({.max_loaded = 2});
  serve::ModelNews kept;
  kept.name = "k";
  kept.state = ModelState::kReady;
  kept.kept = true;
  world.shelf.Heard(kept, world.now);
  EXPECT_EQ(world.shelf.NextExpiry(world.now), std::nullopt) << "it has no time";
  world.now += kMicrosPerSecond;
  world.Run("a");
  world.now += kMicrosPerSecond;
  EXPECT_EQ(world.LoadFor("b"), "-a +b");
  world.Begin("b");
  EXPECT_EQ(world.LoadFor("c"), "-k +c");
}

TEST(ModelShelf, UnloadOnRequestWaitsForNobodyAndRefusesWhileInUse) {
  Shelf world;
  world.LoadFor("a");
  EXPECT_FALSE(world.shelf.Unload("a")) << "somebody waits for it";
  world.Begin("a");
  EXPECT_FALSE(world.shelf.Unload("a"));
  world.shelf.Done("a", world.now);
  EXPECT_TRUE(world.shelf.Unload("a"));
  EXPECT_EQ(world.Obey(), "-a");
}

TEST(ModelShelf, ModelsAtTheLimitAreListedAndOneMoreIsLeftOut) {
  ModelShelf shelf({});
  serve::ModelNews news;
  for (size_t i = 0; i < serve::kMaxModels; ++i) {
    news.name = "m" + std::to_string(i);
    EXPECT_TRUE(shelf.Heard(news, 0));
  }
  news.name = "one more";
  EXPECT_FALSE(shelf.Heard(news, 0));
  EXPECT_EQ(shelf.models().size(), serve::kMaxModels);
}

}  // namespace
}  // namespace quire
