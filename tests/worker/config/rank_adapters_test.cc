// A rank's adapters: packed beside its steps, again where that has not been done, and none where
// the content has given way.
#include "worker/rank_adapters.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

namespace quire {
namespace {

constexpr int64_t kLong = 60'000'000;
constexpr int kMaxRank = 4;

struct Packed final : kernels::AdapterWeights {
  explicit Packed(float number) : first(number) {}
  int64_t Bytes() const override { return 4; }
  const float first;  // of A
};

// Keeps the first number of an adapter.
class FirstNumber final : public kernels::LoadedProgram {
 public:
  std::shared_ptr<const kernels::AdapterWeights> PackAdapter(
      const kernels::Adapter& adapter) const override {
    ++packed;
    float first = 0;
    memcpy(&first, adapter.targets.at(0).a.data, sizeof(first));
    return std::make_shared<Packed>(first);
  }
  void Run(const kernels::StepBatch& /*batch*/) override {}
  void RunWithLogits(const kernels::StepBatch& /*batch*/, std::span<float> /*logits*/) override {}
  void PoisonPage(int32_t /*page*/) override {}
  int64_t WeightBytes() const override { return 0; }
  int64_t WorkspaceBytes() const override { return 0; }
  int64_t PoolBytes() const override { return 0; }

  mutable std::atomic<int> packed{0};
};

class RankAdaptersTest : public testing::Test {
 protected:
  RankAdaptersTest() {
    auto arena = AdapterArena::Create({2, 1, AdapterArena::PieceBytes(targets_, kMaxRank)});
    EXPECT_TRUE(arena.ok()) << arena.status();
    arena_ = *std::move(arena);
  }
  std::unique_ptr<RankAdapters> Make() {
    return std::make_unique<RankAdapters>(*arena_,
                                          RankAdapters::Of{targets_, program_, 0, kMaxRank});
  }
  ArenaPlace Put(float number) {
    const std::vector<float> numbers(64, number);
    const auto* bytes = reinterpret_cast<const std::byte*>(numbers.data());
    kernels::Adapter adapter;
    adapter.targets.push_back({{kernels::DType::kF32, kMaxRank, 8, bytes},
                               {kernels::DType::kF32, 16, kMaxRank, bytes},
                               1.0f});
    const auto place = arena_->Put(std::vector<kernels::Adapter>{adapter}, kLong);
    EXPECT_TRUE(place.ok()) << place.status();
    return place.ok() ? *place : ArenaPlace();
  }
  static float FirstOf(const std::shared_ptr<const kernels::AdapterWeights>& weights) {
    return static_cast<const Packed&>(*weights).first;
  }

  const std::vector<kernels::LoraTarget> targets_ = {{{"m"}, 16, 8, {{0, 16}}, 0, 8}};
  FirstNumber program_;
  std::shared_ptr<AdapterArena> arena_;
};

TEST_F(RankAdaptersTest, WhatThePutAwaitsHasBeenPacked) {
  const auto adapters = Make();
  for (const float number : {3.0f, 4.0f}) {
    const ArenaPlace place = Put(number);
    const int before = program_.packed;
    const auto taken = adapters->Take(place);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(FirstOf(*taken), number);
    EXPECT_EQ(program_.packed, before) << "it was packed on the rank's own thread";
    arena_->Free(place);
  }
}

TEST_F(RankAdaptersTest, ARankThatStartsLaterPacksItWhereItMust) {
  auto first = Make();
  const ArenaPlace place = Put(5.0f);
  first.reset();
  const auto again = Make();
  const auto taken = again->Take(place);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(FirstOf(*taken), 5.0f);
}

TEST_F(RankAdaptersTest, AContentThatHasGivenWayIsNoFault) {
  const auto adapters = Make();
  const ArenaPlace place = Put(6.0f);
  arena_->Free(place);
  const auto gone = adapters->Take(place);
  ASSERT_TRUE(gone.ok()) << gone.status();
  // Its thread may not have seen yet that the place is free.
  if (*gone != nullptr) {
    EXPECT_EQ(FirstOf(*gone), 6.0f);
  }
  const ArenaPlace other = Put(7.0f);
  ASSERT_EQ(other.entry, place.entry);
  const auto replaced = adapters->Take(place);
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ(*replaced, nullptr);
}

}  // namespace
}  // namespace quire
