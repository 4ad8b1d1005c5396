// Collectives over shared memory: what they give, bit by bit, and how a group fails.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "kernels/collectives/shared_group.h"

namespace quire::kernels {
namespace {

constexpr int64_t kLongMicros = 60'000'000;
const int kSizes[] = {1, 2, 4};

std::unique_ptr<SharedGroup> MakeGroup(int size, size_t arena_bytes = 0) {
  std::string error;
  auto group = SharedGroup::Create({size, arena_bytes}, error);
  EXPECT_NE(group, nullptr) << error;
  return group;
}

void RunThreads(SharedGroup& group, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&group, &body, rank] {
      const std::unique_ptr<Communicator> communicator = group.Join(rank);
      communicator->SetDeadline(kLongMicros);
      body(*communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Values of very different size, so that another order of summation gives other bits.
std::vector<float> Values(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank) * 7919 + 1);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(random()) / 2e9f - 1.0f, static_cast<int>(random() % 40));
  }
  return values;
}

std::vector<float> Expected(int size, size_t count) {
  std::vector<float> sum = Values(0, count);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<float> values = Values(rank, count);
    for (size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  return sum;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// 1: one rank's line is empty at 4; 32768: a slot; beyond: parts, or in place.
const size_t kCounts[] = {1, 17, 640, 32768, 32769, 100001};

TEST(SharedCommunicator, SumsAreInRankOrderToTheBit) {
  for (const int size : kSizes) {
    for (const bool in_place : {false, true}) {
      const auto group = MakeGroup(size, 1 << 20);
      std::vector<int> good(static_cast<size_t>(size));
      RunThreads(*group, [&](Communicator& ranks) {
        for (const size_t count : kCounts) {
          std::vector<float> own = Values(ranks.rank(), count);
          std::span<float> values = own;
          if (in_place) {
            auto* memory = reinterpret_cast<float*>(ranks.Allocate(count * sizeof(float)));
            ASSERT_NE(memory, nullptr);
            ASSERT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
            values = {memory, count};
            std::memcpy(memory, own.data(), count * sizeof(float));
          }
          ASSERT_EQ(ranks.AllReduceSum(values), CommFailure::kNone);
          good[static_cast<size_t>(ranks.rank())] += SameBits(values, Expected(size, count));
        }
      });
      for (const int rank_good : good) EXPECT_EQ(rank_good, static_cast<int>(std::size(kCounts)));
    }
  }
}

TEST(SharedCommunicator, GathersAndBroadcastsWhatAllHave) {
  for (const int size : kSizes) {
    const auto group = MakeGroup(size);
    std::vector<int> good(static_cast<size_t>(size));
    RunThreads(*group, [&](Communicator& ranks) {
      int& right = good[static_cast<size_t>(ranks.rank())];
      for (const size_t count : kCounts) {
        const std::vector<float> mine = Values(ranks.rank(), count);
        std::vector<float> all(count * static_cast<size_t>(size));
        ASSERT_EQ(
            ranks.AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all))),
            CommFailure::kNone);
        for (int rank = 0; rank < size; ++rank) {
          right += SameBits(std::span(all).subspan(static_cast<size_t>(rank) * count, count),
                            Values(rank, count));
        }
        std::vector<float> told = Values(ranks.rank(), count);
        ASSERT_EQ(ranks.Broadcast(std::as_writable_bytes(std::span(told)), size - 1),
                  CommFailure::kNone);
        right += SameBits(told, Values(size - 1, count));
      }
      std::vector<int> ids(static_cast<size_t>(size));
      ASSERT_EQ(AllGatherValues<int>(ranks, ranks.rank() + 10, ids), CommFailure::kNone);
      right += ids.back() == size + 9;
    });
    for (const int rank_good : good) {
      EXPECT_EQ(rank_good, static_cast<int>(std::size(kCounts)) * (size + 1) + 1);
    }
  }
}

// A rank that runs ahead must not overwrite what a slower one still reads.
TEST(SharedCommunicator, ManySmallOnesInARowKeepApart) {
  for (const int size : kSizes) {
    const auto group = MakeGroup(size);
    std::vector<int> wrong(static_cast<size_t>(size));
    RunThreads(*group, [&](Communicator& ranks) {
      std::vector<int> all(static_cast<size_t>(size));
      for (int round = 0; round < 2000; ++round) {
        float sum = static_cast<float>(round + ranks.rank());
        ASSERT_EQ(AllGatherValues<int>(ranks, round * 100 + ranks.rank(), all), CommFailure::kNone);
        ASSERT_EQ(ranks.AllReduceSum({&sum, 1}), CommFailure::kNone);
        if (round % 7 == 0) {
          ASSERT_EQ(ranks.Barrier(), CommFailure::kNone);
        }
        int& bad = wrong[static_cast<size_t>(ranks.rank())];
        for (int rank = 0; rank < size; ++rank) {
          bad += all[static_cast<size_t>(rank)] != round * 100 + rank;
        }
        bad += sum != static_cast<float>(size * round + size * (size - 1) / 2);
      }
    });
    for (const int rank_wrong : wrong) EXPECT_EQ(rank_wrong, 0);
  }
}

TEST(SharedCommunicator, AbortWakesAllThatWait) {
  const auto group = MakeGroup(4);
  std::atomic<int> aborted{0};
  std::vector<std::thread> waiting;
  for (int rank = 0; rank < 3; ++rank) {
    waiting.emplace_back([&, rank] {
      const auto ranks = group->Join(rank);
      ranks->SetDeadline(kLongMicros);
      aborted += ranks->Barrier() == CommFailure::kAborted;
      float value = 0;
      aborted += ranks->AllReduceSum({&value, 1}) == CommFailure::kAborted;  // it stays so
      aborted += ranks->failure() == CommFailure::kAborted;
    });
  }
  group->Join(3)->Abort();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(aborted, 9);
  EXPECT_TRUE(group->aborted());
  EXPECT_EQ(group->Join(3)->Barrier(), CommFailure::kAborted);
}

TEST(SharedCommunicator, ARankThatDoesNotComeOverrunsTheDeadline) {
  const auto group = MakeGroup(2);
  const auto ranks = group->Join(0);
  ranks->SetDeadline(1'000);
  EXPECT_EQ(ranks->Barrier(), CommFailure::kDeadline);
  EXPECT_EQ(ranks->failure(), CommFailure::kDeadline);
  // The one that comes after all finds the group gone.
  const auto late = group->Join(1);
  EXPECT_EQ(late->Barrier(), CommFailure::kAborted);
}

TEST(SharedCommunicator, ASkippedCollectiveIsFoundOut) {
  for (const bool other_size : {false, true}) {
    const auto group = MakeGroup(2);
    std::vector<CommFailure> failures(2);
    RunThreads(*group, [&](Communicator& ranks) {
      std::vector<float> values(ranks.rank() == 0 || !other_size ? 8 : 4);
      CommFailure failure = CommFailure::kNone;
      if (ranks.rank() == 0 || other_size) failure = ranks.AllReduceSum(values);
      if (failure == CommFailure::kNone) failure = ranks.Barrier();
      failures[static_cast<size_t>(ranks.rank())] = failure;
    });
    // One of them sees it, the other at least that the group is gone.
    EXPECT_TRUE(failures[0] == CommFailure::kMismatch || failures[1] == CommFailure::kMismatch);
    EXPECT_NE(failures[0], CommFailure::kNone);
    EXPECT_NE(failures[1], CommFailure::kNone);
  }
}

TEST(SharedCommunicator, MemoryRunsOutAsAResult) {
  const auto group = MakeGroup(2, 256);
  const auto ranks = group->Join(0);
  EXPECT_NE(ranks->Allocate(100), nullptr);
  EXPECT_NE(ranks->Allocate(128), nullptr);
  EXPECT_EQ(ranks->Allocate(1), nullptr);
  std::string error;
  EXPECT_EQ(SharedGroup::Create({0, 0}, error), nullptr);
  EXPECT_EQ(SharedGroup::Create({kMaxRanks + 1, 0}, error), nullptr);
  EXPECT_NE(error.find("64"), std::string::npos);
  EXPECT_EQ(SharedGroup::Create({1, ~size_t{0}}, error), nullptr);
}

// --- processes --------------------------------------------------------------------------------

// A process of its own that maps the group anew; it exits with what `body` returns.
pid_t StartRank(const SharedGroup& group, size_t arena_bytes, int rank,
                const std::function<int(Communicator&)>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  std::string error;
  const auto own = SharedGroup::Open({group.size(), arena_bytes}, dup(group.fd()), error);
  if (own == nullptr) _exit(100);
  const auto communicator = own->Join(rank);
  communicator->SetDeadline(kLongMicros);
  _exit(body(*communicator));
}

int ExitCode(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(SharedCommunicator, ProcessesGiveTheBitsOfThreads) {
  for (const int size : kSizes) {
    const auto group = MakeGroup(size, 1 << 20);
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(StartRank(*group, 1 << 20, rank, [size](Communicator& own) {
        for (const size_t count : kCounts) {
          std::vector<float> values = Values(own.rank(), count);
          auto* memory = reinterpret_cast<float*>(own.Allocate(count * sizeof(float)));
          std::memcpy(memory, values.data(), count * sizeof(float));
          if (own.AllReduceSum(values) != CommFailure::kNone) return 1;
          if (own.AllReduceSum({memory, count}) != CommFailure::kNone) return 2;
          if (!SameBits(values, Expected(size, count))) return 3;
          if (!SameBits({memory, count}, values)) return 4;
        }
        return 0;
      }));
    }
    for (const pid_t rank : ranks) EXPECT_EQ(ExitCode(rank), 0);
  }
}

TEST(SharedCommunicator, AKilledProcessIsMissedAndAnAbortFromOutsideEndsItsPeers) {
  const auto group = MakeGroup(2);
  const pid_t killed = StartRank(*group, 0, 1, [](Communicator& own) {
    if (own.Barrier() != CommFailure::kNone) return 1;
    raise(SIGKILL);
    return 2;
  });
  const pid_t peer = StartRank(*group, 0, 0, [](Communicator& own) {
    if (own.Barrier() != CommFailure::kNone) return 1;
    return own.Barrier() == CommFailure::kAborted ? 0 : 3;
  });
  EXPECT_EQ(ExitCode(killed), 128 + SIGKILL);
  group->Abort();
  EXPECT_EQ(ExitCode(peer), 0);
}

TEST(SharedMemory, RefusesWhatIsNoneOrTooSmall) {
  std::string error;
  EXPECT_EQ(SharedMemory::Open(-1, 1, error), nullptr);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(SharedMemory::Open(ends[0], 1, error), nullptr);
  EXPECT_NE(error.find("another's"), std::string::npos);
  close(ends[1]);
  const auto memory = SharedMemory::Create("test", 4096, error);
  ASSERT_NE(memory, nullptr) << error;
  EXPECT_NE(ftruncate(memory->fd(), 1), 0);  // sealed
  EXPECT_EQ(SharedMemory::Open(dup(memory->fd()), 8192, error), nullptr);
  EXPECT_NE(error.find("8192"), std::string::npos);
  const auto other = SharedMemory::Open(dup(memory->fd()), 4096, error);
  ASSERT_NE(other, nullptr) << error;
  memory->bytes()[5] = std::byte{7};
  EXPECT_EQ(other->bytes()[5], std::byte{7});
}

}  // namespace
}  // namespace quire::kernels
