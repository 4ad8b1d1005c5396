// The memory of adapters between the engine and its ranks: what is put there is what ranks read,
// entries are bounded and come back, and nothing damaged is believed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "kernels/collectives/futex.h"
#include "worker/ranks/adapter_arena.h"
#include "worker/ranks/rank_messages.h"

namespace quire {
namespace {

using kernels::Adapter;
using kernels::DType;
using kernels::LoraTarget;

constexpr int kMaxRank = 8;
constexpr int64_t kLong = 60'000'000;

LoraTarget TargetOf(int64_t rows, int64_t cols) {
  return {{"m"}, rows, cols, {{0, rows}}, 0, cols};
}

const std::vector<LoraTarget>& Targets() {
  static const std::vector<LoraTarget> targets = {TargetOf(24, 16), TargetOf(8, 40),
                                                  TargetOf(16, 16)};
  return targets;
}

// Numbers for an adapter that leaves the second target alone.
struct Numbers {
  explicit Numbers(uint8_t with, DType type = DType::kF32) : type(type) {
    const int64_t each = type == DType::kF32 ? 4 : 2;
    for (const LoraTarget& target : Targets()) {
      a.emplace_back(static_cast<size_t>(each * kMaxRank * target.cols), std::byte{with});
      b.emplace_back(static_cast<size_t>(each * target.rows * kMaxRank), std::byte{with});
    }
  }
  Adapter Of() const {
    Adapter adapter;
    adapter.targets.resize(3);
    for (const size_t i : {size_t{0}, size_t{2}}) {
      adapter.targets[i].a = {type, kMaxRank, Targets()[i].cols, a[i].data()};
      adapter.targets[i].b = {type, Targets()[i].rows, kMaxRank, b[i].data()};
      adapter.targets[i].scale = 0.5f + static_cast<float>(i);
    }
    return adapter;
  }

  DType type;
  std::vector<std::vector<std::byte>> a, b;
};

std::shared_ptr<AdapterArena> MakeArena(int entries, int ranks) {
  auto arena =
      AdapterArena::Create({entries, ranks, AdapterArena::PieceBytes(Targets(), kMaxRank)});
  EXPECT_TRUE(arena.ok()) << arena.status();
  return *std::move(arena);
}

std::unique_ptr<AdapterArena> OpenAs(const AdapterArena& arena) {
  auto opened = AdapterArena::Open(dup(arena.fd()));
  EXPECT_TRUE(opened.ok()) << opened.status();
  return *std::move(opened);
}

// Ranks that take whatever comes.
class Ranks {
 public:
  explicit Ranks(const AdapterArena& arena) {
    for (int rank = 0; rank < arena.shape().ranks; ++rank) {
      threads_.emplace_back([this, opened = OpenAs(arena), rank] {
        while (!stop_.load()) {
          const uint32_t seen = opened->Changes();
          for (int entry = 0; entry < opened->shape().entries; ++entry) {
            const uint64_t number = opened->NumberOf(entry);
            if (number > 0) opened->SetPacked({entry, number}, rank);
          }
          opened->AwaitChange(seen, 1000);
        }
      });
    }
  }
  ~Ranks() {
    stop_.store(true);
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

TEST(AdapterArena, RanksReadWhatWasPut) {
  const auto arena = MakeArena(2, 2);
  const Ranks ranks(*arena);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Numbers first(1, type), second(2, type);
    const std::vector<Adapter> parts = {first.Of(), second.Of()};
    const auto place = arena->Put(parts, kLong);
    ASSERT_TRUE(place.ok()) << place.status();
    for (int rank = 0; rank < 2; ++rank) {
      const auto opened = OpenAs(*arena);
      const auto read = opened->Read(place->entry, rank, Targets(), kMaxRank);
      ASSERT_TRUE(read.ok()) << read.status();
      for (size_t i = 0; i < 3; ++i) {
        const kernels::AdapterMatrices& wanted = parts[static_cast<size_t>(rank)].targets[i];
        const kernels::AdapterMatrices& got = read->targets[i];
        ASSERT_EQ(got.a.rows, wanted.a.rows);
        if (got.a.rows == 0) continue;
        EXPECT_EQ(got.scale, wanted.scale);
        ASSERT_EQ(got.a.Bytes(), wanted.a.Bytes());
        ASSERT_EQ(got.b.Bytes(), wanted.b.Bytes());
        EXPECT_EQ(memcmp(got.a.data, wanted.a.data, static_cast<size_t>(got.a.Bytes())), 0);
        EXPECT_EQ(memcmp(got.b.data, wanted.b.data, static_cast<size_t>(got.b.Bytes())), 0);
      }
    }
    EXPECT_GT(arena->BytesOf(*place), 2 * parts[0].targets[0].a.Bytes());
    arena->Free(*place);
  }
}

TEST(AdapterArena, EntriesAreBoundedAndComeBack) {
  const auto arena = MakeArena(3, 1);
  const Ranks ranks(*arena);
  const Numbers numbers(7);
  const std::vector<Adapter> parts = {numbers.Of()};
  std::vector<std::shared_ptr<ArenaAdapter>> held;
  for (int i = 0; i < 3; ++i) {
    const auto place = arena->Put(parts, kLong);
    ASSERT_TRUE(place.ok()) << place.status();
    held.push_back(std::make_shared<ArenaAdapter>(arena, *place));
  }
  EXPECT_TRUE(absl::IsUnavailable(arena->Put(parts, kLong).status()));
  const ArenaPlace first = held[1]->place;
  held.erase(held.begin() + 1);
  EXPECT_EQ(arena->NumberOf(first.entry), 0u);
  EXPECT_FALSE(arena->Read(first.entry, 0, Targets(), kMaxRank).ok()) << "its memory is zeros";
  const auto again = arena->Put(parts, kLong);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->entry, first.entry);
  EXPECT_NE(again->number, first.number);
}

TEST(AdapterArena, ARankThatDoesNotTakeItAndAWorkerThatLeavesEndThePut) {
  const auto arena = MakeArena(1, 2);
  const Numbers numbers(7);
  const std::vector<Adapter> parts = {numbers.Of(), numbers.Of()};
  EXPECT_TRUE(absl::IsUnavailable(arena->Put(parts, 20'000).status()));
  EXPECT_EQ(arena->NumberOf(0), 0u) << "the entry is free again";
  std::thread leaves([&] { arena->Close(); });
  EXPECT_TRUE(absl::IsUnavailable(arena->Put(parts, kLong).status()));
  leaves.join();
}

TEST(AdapterArena, WhatDoesNotFitIsRefused) {
  const auto arena = MakeArena(1, 1);
  Numbers numbers(7);
  Adapter large = numbers.Of();
  const std::vector<std::byte> more(static_cast<size_t>(arena->shape().rank_bytes) + 64);
  large.targets[1].a = {DType::kF32, 1, static_cast<int64_t>(more.size()) / 4, more.data()};
  large.targets[1].b = {DType::kF32, 1, 1, more.data()};
  const std::vector<Adapter> parts = {large};
  EXPECT_FALSE(arena->Put(parts, 1000).ok());
  Adapter quantised = numbers.Of();
  quantised.targets[0].a.type = DType::kQ8_0;
  EXPECT_FALSE(arena->Put(std::vector<Adapter>{quantised}, 1000).ok());
  EXPECT_EQ(arena->NumberOf(0), 0u);
}

TEST(AdapterArena, NothingDamagedIsBelieved) {
  const auto arena = MakeArena(1, 1);
  const auto piece_bytes = static_cast<size_t>(arena->shape().rank_bytes);
  std::string error;
  const auto memory = kernels::SharedMemory::Open(dup(arena->fd()), 1, error);
  ASSERT_NE(memory, nullptr) << error;
  const auto piece = memory->bytes().last(piece_bytes);
  std::mt19937_64 rng(5);
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t targets = round % 4 == 0 ? rng() : 3;
    memcpy(piece.data(), &targets, sizeof(targets));
    for (size_t i = sizeof(targets); i < 160; ++i) {
      piece[i] = std::byte(rng() % (rng() % 3 == 0 ? 256 : 3));
    }
    const auto read = arena->Read(0, 0, Targets(), kMaxRank);
    if (!read.ok()) continue;
    for (const kernels::AdapterMatrices& own : read->targets) {
      if (own.a.rows == 0) continue;
      ASSERT_LE(own.a.rows, kMaxRank);
      for (const kernels::WeightSource* source : {&own.a, &own.b}) {
        ASSERT_TRUE(source->type == DType::kF32 || source->type == DType::kF16 ||
                    source->type == DType::kBF16);
      }
    }
  }
  // The head of the memory itself.
  for (const size_t at : {size_t{0}, size_t{8}, size_t{12}, size_t{16}}) {
    const auto other = MakeArena(1, 1);
    const auto bytes = kernels::SharedMemory::Open(dup(other->fd()), 1, error);
    bytes->bytes()[at + 3] = std::byte{0x7f};
    EXPECT_FALSE(AdapterArena::Open(dup(other->fd())).ok()) << at;
  }
  EXPECT_FALSE(AdapterArena::Open(dup(0)).ok()) << "no memory at all";
}

TEST(RankMessages, AnAdaptersSlotIsBelowTheMost) {
  StepLimits limits;
  limits.max_loras = 4;
  std::vector<std::byte> bytes;
  RankAdapterSlot back;
  for (const int32_t slot : {0, 3, 4, -1}) {
    EncodeRankAdapterSlot({slot, 2, 9}, bytes);
    const bool good = slot >= 0 && slot < 4;
    ASSERT_EQ(DecodeRankAdapterSlot(bytes, limits, back).ok(), good) << slot;
    if (good) {
      EXPECT_EQ(back.slot, slot);
    }
  }
  EncodeRankAdapterSlot({0, 2, 0}, bytes);
  EXPECT_FALSE(DecodeRankAdapterSlot(bytes, limits, back).ok()) << "a free entry";
  EncodeRankAdapterSlot({0, 2, 9}, bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeRankAdapterSlot(std::span(bytes).first(size), limits, back).ok()) << size;
  }
}

}  // namespace
}  // namespace quire
