// GPU ranks over a library that stands in for NCCL: what sums give, and how a group fails.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "kernels/collectives/shared_group.h"
#include "kernels/cuda/emulate/emulated_runtime.h"
#include "kernels/cuda/nccl/nccl_communicator.h"
#include "kernels/cuda/ops/rows/rank_sum.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/nccl/fake_nccl.h"

namespace quire::kernels::cuda::test {
namespace {

LibraryPlaces Named(const std::string& folder) {
  LibraryPlaces places;
  places.named = std::string(QUIRE_FAKE_NCCL_FOLDER) + "/" + folder;
  return places;
}

// One rank on a device of its own.
struct Rank {
  emulate::EmulatedRuntime& runtime;
  runtime::StreamId stream;
  nccl::NcclCommunicator& ranks;
  Communicator& host;

  float* Put(const std::vector<float>& values) {
    auto* at = reinterpret_cast<float*>(ranks.Allocate(values.size() * sizeof(float)));
    EXPECT_EQ(runtime.Copy(stream, at, values.data(), values.size() * sizeof(float)), "");
    EXPECT_EQ(runtime.Synchronize(stream), "");
    return at;
  }
  // All that was queued has happened.
  CommFailure Finish() {
    runtime::EventId event{};
    EXPECT_EQ(runtime.CreateEvent(&event), "");
    EXPECT_EQ(runtime.Record(event, stream), "");
    return ranks.Await(event);
  }
};

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    std::string error;
    library_ = nccl::Library::Open(Named("good"), error);
    ASSERT_NE(library_, nullptr) << error;
    // The same file is the same library: its controls are found by opening it once more.
    file_ = OpenLibraryFile(library_->path(), error);
    ASSERT_NE(file_, nullptr) << error;
    Order({});
  }

  void Order(const FakeNcclOrders& orders) {
    reinterpret_cast<FakeNcclSet>(file_->Symbol("fake_nccl_set"))(&orders);
  }
  FakeNcclCounts Counts() {
    FakeNcclCounts counts;
    reinterpret_cast<FakeNcclRead>(file_->Symbol("fake_nccl_read"))(&counts);
    return counts;
  }

  // Every rank is a thread with a device; `errors` of those that did not start are returned.
  std::vector<std::string> Run(int size, const std::function<void(Rank&)>& body,
                               size_t scratch_bytes = 1 << 16, int64_t init_micros = 60'000'000) {
    std::string error;
    const auto group = SharedGroup::Create({size, 0}, error);
    EXPECT_NE(group, nullptr) << error;
    std::vector<std::string> errors(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        emulate::EmulatedRuntime runtime(static_cast<uint64_t>(r) + 1);
        const auto host = group->Join(r);
        host->SetDeadline(60'000'000);
        nccl::CommunicatorOptions options;
        options.library = library_.get();
        options.host = host.get();
        options.runtime = &runtime;
        options.scratch_bytes = scratch_bytes;
        options.init_micros = init_micros;
        if (amend_) amend_(options);
        EXPECT_EQ(runtime.CreateStream(&options.stream), "");
        const auto ranks = nccl::NcclCommunicator::Create(options, errors[static_cast<size_t>(r)]);
        if (ranks == nullptr) return;
        ranks->SetDeadline(60'000'000);
        Rank rank{runtime, options.stream, *ranks, *host};
        body(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  void ExpectAllEnded(int aborted) {
    const FakeNcclCounts counts = Counts();
    EXPECT_EQ(counts.aborted, aborted);
    EXPECT_EQ(counts.aborted + counts.destroyed, counts.started);
    EXPECT_EQ(counts.blocking, 0) << "a communicator was asked for that blocks";
  }

  std::unique_ptr<nccl::Library> library_;
  std::unique_ptr<SharedLibrary> file_;
  std::function<void(nccl::CommunicatorOptions&)> amend_;  // of one rank, before it begins
};

std::vector<float> Values(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::ldexp(
        static_cast<float>((i * 7919 + static_cast<size_t>(rank) * 104'729) % 1009) - 500.0f,
        static_cast<int>((i * 31 + static_cast<size_t>(rank)) % 40));
  }
  return values;
}

std::vector<float> Sum(int size, size_t count) {
  std::vector<float> sum = Values(0, count);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<float> more = Values(rank, count);
    for (size_t i = 0; i < count; ++i) sum[i] += more[i];
  }
  return sum;
}

bool SameBits(const std::vector<float>& a, const float* b) {
  return std::memcmp(a.data(), b, a.size() * sizeof(float)) == 0;
}

TEST(CudaRankSum, AddsInTheOrderOfRanksWithinItsBudget) {
  for (const int size : {1, 2, 8}) {
    for (const size_t count : {size_t{1}, size_t{17}, size_t{4096}}) {
      DeviceBed bed;
      std::vector<float> parts;
      for (int rank = 0; rank < size; ++rank) {
        const auto own = Values(rank, count);
        parts.insert(parts.end(), own.begin(), own.end());
      }
      RankSumParams params;
      params.parts = bed.Put(parts);
      params.out = bed.New<float>(count);
      params.ranks = size;
      params.count = static_cast<int64_t>(count);
      bed.Check(LaunchRankSum(bed.runtime(), bed.stream(), params));
      EXPECT_TRUE(SameBits(Sum(size, count), bed.Get(params.out, count).data())) << size << count;
      if (count < 4096) continue;
      ExpectWithinBudget(bed.runtime(), "rank_sum", 4.0 * static_cast<double>(count) * (size + 1),
                         0);
    }
  }
  DeviceBed bed;
  const size_t count = 4095;  // no whole vectors
  RankSumParams params;
  params.parts = bed.Put(Values(0, count));
  params.out = bed.New<float>(count);
  params.ranks = 1;
  params.count = static_cast<int64_t>(count);
  bed.Check(LaunchRankSum(bed.runtime(), bed.stream(), params));
  bed.Check(bed.runtime().Synchronize(bed.stream()));
  ExpectWithinBudget(bed.runtime(), "rank_sum_narrow", 8.0 * static_cast<double>(count), 0);
  params.ranks = 0;
  EXPECT_NE(LaunchRankSum(bed.runtime(), bed.stream(), params), "");
}

TEST_F(Nccl, SumsGathersAndBroadcastsInTheOrderOfItsStream) {
  for (const int polls : {0, 3}) {
    FakeNcclOrders orders;
    orders.polls_of_init = polls;
    orders.polls_of_op = polls;
    Order(orders);
    for (const int size : {1, 2, 4}) {
      const auto errors = Run(size, [&](Rank& rank) {
        for (const size_t count : {size_t{1}, size_t{640}, size_t{40'000}}) {  // the last in pieces
          float* values = rank.Put(Values(rank.ranks.rank(), count));
          ASSERT_EQ(rank.ranks.AllReduceSum({values, count}), CommFailure::kNone);
          ASSERT_EQ(rank.Finish(), CommFailure::kNone) << rank.ranks.error();
          EXPECT_TRUE(SameBits(Sum(size, count), values)) << size << " ranks, " << count;
        }
        const size_t all_count = 8 * static_cast<size_t>(size);
        float* mine = rank.Put(Values(rank.ranks.rank(), 8));
        float* all = rank.Put(std::vector<float>(all_count));
        ASSERT_EQ(rank.ranks.AllGather(std::as_bytes(std::span(mine, 8)),
                                       std::as_writable_bytes(std::span(all, all_count))),
                  CommFailure::kNone);
        float* told = rank.Put(Values(rank.ranks.rank(), 5));
        ASSERT_EQ(rank.ranks.Broadcast(std::as_writable_bytes(std::span(told, 5)), size - 1),
                  CommFailure::kNone);
        ASSERT_EQ(rank.ranks.Barrier(), CommFailure::kNone);
        ASSERT_EQ(rank.Finish(), CommFailure::kNone);
        for (int r = 0; r < size; ++r) EXPECT_TRUE(SameBits(Values(r, 8), all + 8 * r));
        EXPECT_TRUE(SameBits(Values(size - 1, 5), told));
      });
      for (const std::string& error : errors) EXPECT_EQ(error, "");
    }
    ExpectAllEnded(0);
  }
}

TEST_F(Nccl, CollectivesAreCapturedAndReplayed) {
  const auto errors = Run(2, [](Rank& rank) {
    const size_t count = 256;
    const std::vector<float> own = Values(rank.ranks.rank(), count);
    float* values = rank.Put(own);
    EXPECT_EQ(rank.Finish(), CommFailure::kNone);
    runtime::GraphId graph{};
    EXPECT_EQ(rank.runtime.BeginCapture(rank.stream), "");
    EXPECT_EQ(rank.ranks.AllReduceSum({values, count}), CommFailure::kNone);
    EXPECT_EQ(rank.runtime.EndCapture(rank.stream, &graph), "");
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(rank.runtime.Copy(rank.stream, values, own.data(), count * sizeof(float)), "");
      EXPECT_EQ(rank.runtime.LaunchGraph(graph, rank.stream), "");
      EXPECT_EQ(rank.Finish(), CommFailure::kNone);
      EXPECT_TRUE(SameBits(Sum(2, count), values)) << round;
    }
    EXPECT_EQ(rank.runtime.DestroyGraph(graph), "");
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(Counts().stuck, 0);
}

constexpr int64_t kHours = 36'000'000'000;

// What `orders` break, a step of two collectives finds out, on every rank, and stays so.
void StepFails(Rank& rank, std::initializer_list<CommFailure> one_of) {
  float* values = rank.Put(Values(rank.ranks.rank(), 64));
  rank.ranks.SetDeadline(300'000);
  rank.ranks.AllReduceSum({values, 64});
  rank.ranks.AllReduceSum({values, 64});
  const CommFailure failure = rank.Finish();
  EXPECT_NE(std::find(one_of.begin(), one_of.end(), failure), one_of.end())
      << CommFailureName(failure);
  EXPECT_EQ(rank.ranks.failure(), failure);
  EXPECT_NE(rank.ranks.error(), "");
  EXPECT_EQ(rank.ranks.error().find('\n'), std::string::npos);
  EXPECT_EQ(rank.ranks.Barrier(), failure) << "the first failure stays";
  // The device is free again: what waited there has been let go.
  EXPECT_EQ(rank.runtime.Synchronize(rank.stream), "");
}

TEST_F(Nccl, AHangEndsAtTheDeadlineAndFreesTheDevice) {
  FakeNcclOrders orders;
  orders.rank = 1;
  orders.hang_at = 1;
  Order(orders);
  // Whoever is first ends the wait of the other.
  const auto errors = Run(2, [](Rank& rank) {
    StepFails(rank, {CommFailure::kDeadline, CommFailure::kAborted});
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  ExpectAllEnded(2);
}

// The abort would not end while a graph holds a collective: who owns the graph gives it back first.
TEST_F(Nccl, GraphsAreGivenBackBeforeAnAbort) {
  FakeNcclOrders orders;
  orders.rank = 1;
  orders.hang_at = 1;
  Order(orders);
  std::function<void()> give_back[2];
  amend_ = [&give_back](nccl::CommunicatorOptions& options) {
    options.before_abort = [&own = give_back[options.host->rank()]] { own(); };
  };
  const auto errors = Run(2, [&give_back](Rank& rank) {
    float* values = rank.Put(Values(rank.ranks.rank(), 64));
    runtime::GraphId graph{};
    int given_back = 0;
    give_back[rank.ranks.rank()] = [&] {
      ++given_back;
      EXPECT_EQ(rank.runtime.DestroyGraph(graph), "");
    };
    EXPECT_EQ(rank.runtime.BeginCapture(rank.stream), "");
    EXPECT_EQ(rank.ranks.AllReduceSum({values, 64}), CommFailure::kNone);
    EXPECT_EQ(rank.runtime.EndCapture(rank.stream, &graph), "");
    rank.ranks.SetDeadline(300'000);
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(rank.runtime.LaunchGraph(graph, rank.stream), "");
    }
    const CommFailure failure = rank.Finish();
    EXPECT_TRUE(failure == CommFailure::kDeadline || failure == CommFailure::kAborted);
    EXPECT_EQ(given_back, 1);
    // What is under way of a graph that is gone ends all the same.
    EXPECT_EQ(rank.runtime.Synchronize(rank.stream), "");
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(Counts().stuck, 0);
  ExpectAllEnded(2);
}

// NCCL tells the peer nothing of it.
TEST_F(Nccl, AnErrorOfAPeerIsFoundWhileWaiting) {
  FakeNcclOrders orders;
  orders.rank = 0;
  orders.async_error_at = 1;
  orders.hang_at = -1;
  Order(orders);
  Run(2, [](Rank& rank) {
    if (rank.ranks.rank() == 0) {
      StepFails(rank, {CommFailure::kTransport});
      EXPECT_NE(rank.ranks.error().find("remote process exited (6)"), std::string::npos)
          << rank.ranks.error();
    } else {
      float* values = rank.Put(Values(1, 64));
      rank.ranks.SetDeadline(kHours);
      rank.ranks.AllReduceSum({values, 64});
      rank.ranks.AllReduceSum({values, 64});
      // It was through before, or hears of it from the host's group.
      const CommFailure failure = rank.Finish();
      EXPECT_TRUE(failure == CommFailure::kNone || failure == CommFailure::kAborted);
    }
  });
  EXPECT_EQ(Counts().aborted + Counts().destroyed, 2);
}

TEST_F(Nccl, ACallThatFailsIsTold) {
  FakeNcclOrders orders;
  orders.call_error_at = 0;
  Order(orders);
  Run(2, [](Rank& rank) {
    StepFails(rank, {CommFailure::kTransport});
    EXPECT_EQ(rank.ranks.error(), "ncclAllGather: something else (3)");
  });
  ExpectAllEnded(2);
}

TEST_F(Nccl, AbortOfAnotherThreadEndsAWait) {
  FakeNcclOrders orders;
  orders.hang_at = 0;
  Order(orders);
  Run(2, [](Rank& rank) {
    float* values = rank.Put(Values(rank.ranks.rank(), 64));
    rank.ranks.AllReduceSum({values, 64});
    std::thread watcher([&rank] { rank.ranks.Abort(); });
    EXPECT_EQ(rank.Finish(), CommFailure::kAborted);
    watcher.join();
    rank.ranks.Abort();  // once more changes nothing
    EXPECT_EQ(rank.ranks.Barrier(), CommFailure::kAborted);
    EXPECT_EQ(rank.runtime.Synchronize(rank.stream), "");
  });
  ExpectAllEnded(2);
}

// As who watches the ranks does when one of them has died.
TEST_F(Nccl, AnAbortOfTheHostsGroupEndsAWait) {
  FakeNcclOrders orders;
  orders.rank = 1;
  orders.hang_at = 0;
  Order(orders);
  Run(2, [](Rank& rank) {
    float* values = rank.Put(Values(rank.ranks.rank(), 64));
    rank.ranks.SetDeadline(kHours);
    rank.ranks.AllReduceSum({values, 64});
    std::thread watcher([&rank] { rank.host.Abort(); });
    EXPECT_EQ(rank.Finish(), CommFailure::kAborted);
    watcher.join();
    EXPECT_TRUE(rank.ranks.aborted());
    EXPECT_EQ(rank.runtime.Synchronize(rank.stream), "");
  });
  ExpectAllEnded(2);
}

TEST_F(Nccl, AGroupThatDoesNotComeTogetherIsNone) {
  for (const bool id : {true, false}) {
    FakeNcclOrders orders;
    (id ? orders.id_error : orders.init_error) = 2;
    Order(orders);
    const auto errors = Run(2, [](Rank&) { ADD_FAILURE() << "it started"; });
    EXPECT_NE(errors[0].find(id ? "ncclGetUniqueId: " : "ncclCommInitRankConfig: "),
              std::string::npos)
        << errors[0];
    EXPECT_NE(errors[1], "");
    EXPECT_EQ(Counts().aborted, Counts().started);
  }
  FakeNcclOrders orders;  // under way for ever
  orders.polls_of_init = 1 << 30;
  Order(orders);
  const auto errors = Run(
      2, [](Rank&) { ADD_FAILURE() << "it started"; }, 1 << 16, 100'000);
  int late = 0;  // whoever is first ends the wait of the other
  for (const std::string& error : errors) {
    const bool is_late = error.find("still under way at the deadline") != std::string::npos;
    if (is_late) ++late;
    EXPECT_TRUE(is_late || error == "ncclCommInitRankConfig: aborted") << error;
  }
  EXPECT_GE(late, 1);
  ExpectAllEnded(2);
}

// The wait for a group is hours here: it ends because the peers are told.
TEST_F(Nccl, ARankWithoutMemoryIsNotWaitedFor) {
  amend_ = [](nccl::CommunicatorOptions& options) {
    if (options.host->rank() == 1) options.scratch_bytes = size_t{1} << 50;
  };
  const auto errors = Run(
      3, [](Rank&) { ADD_FAILURE() << "it started"; }, 1 << 16, kHours);
  EXPECT_EQ(errors[1], "no 1125899906842624 bytes of device memory are left for sums");
  for (const int peer : {0, 2}) {
    const std::string& error = errors[static_cast<size_t>(peer)];
    EXPECT_TRUE(error == "rank 1 could not begin a group of NCCL's" ||
                error == "the ranks did not come together: aborted")
        << error;
  }
  EXPECT_EQ(Counts().started, 0) << "NCCL was begun for a group that cannot stand";
}

TEST_F(Nccl, ARankThatFailsToStartIsNotWaitedFor) {
  FakeNcclOrders orders;
  orders.rank = 1;
  orders.init_error = 2;
  orders.polls_of_init = 1 << 30;  // of its peer
  Order(orders);
  const auto errors = Run(
      2, [](Rank&) { ADD_FAILURE() << "it started"; }, 1 << 16, kHours);
  EXPECT_EQ(errors[0], "ncclCommInitRankConfig: aborted");
  EXPECT_NE(errors[1].find("ncclCommInitRankConfig: something"), std::string::npos) << errors[1];
  ExpectAllEnded(2);
}

// Of the library that stands in: files of groups that a process of this number has named.
int SharedFilesOf(pid_t process) {
  const std::string prefix = "quire_fake_nccl." + std::to_string(process) + ".";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    files += entry.path().filename().string().starts_with(prefix) ? 1 : 0;
  }
  return files;
}

TEST_F(Nccl, GroupsThatNeverMeetLeaveNoFiles) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
  const std::string orphan = "/quire_fake_nccl." + std::to_string(gone) + ".1";
  const int file = shm_open(orphan.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  close(file);
  const int before = SharedFilesOf(getpid());
  FakeNcclOrders orders;
  orders.init_error = 2;
  Order(orders);
  Run(2, [](Rank&) { ADD_FAILURE() << "it started"; });
  EXPECT_EQ(SharedFilesOf(getpid()), before);
  EXPECT_EQ(SharedFilesOf(gone), 0) << "of ranks that were killed";
}

TEST_F(Nccl, ScratchWithoutAVectorForEachRankIsRefused) {
  const size_t least = 2 * nccl::kScratchBytesPerRank;
  for (const std::string& error : Run(
           2, [](Rank&) { ADD_FAILURE() << "it started"; }, least - 1)) {
    EXPECT_EQ(error, "scratch of 31 bytes; 2 ranks need at least 32");
  }
  const auto errors = Run(
      2,
      [](Rank& rank) {
        float* values = rank.Put(Values(rank.ranks.rank(), 9));  // in pieces of four
        ASSERT_EQ(rank.ranks.AllReduceSum({values, 9}), CommFailure::kNone);
        ASSERT_EQ(rank.ranks.Barrier(), CommFailure::kNone);
        ASSERT_EQ(rank.Finish(), CommFailure::kNone) << rank.ranks.error();
        EXPECT_TRUE(SameBits(Sum(2, 9), values));
      },
      least);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(NcclLibrary, IsRefusedInOneLineThatSaysWhatIsNeeded) {
  struct Case {
    const char* place;
    const char* mention;
  };
  for (const Case c : {Case{"old", "it is NCCL 2.18.3"}, Case{"lacking", "it has no ncclCommAbort"},
                       Case{"nowhere", "nowhere: "}}) {
    std::string error;
    EXPECT_EQ(nccl::Library::Open(Named(c.place), error), nullptr);
    for (const char* part : {c.mention, "NCCL 2.28.9 or newer", "--nccl-library"}) {
      EXPECT_NE(error.find(part), std::string::npos) << error;
    }
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_EQ(nccl::VersionText(2708), "2.7.8");
  EXPECT_EQ(nccl::VersionText(22809), "2.28.9");
}

}  // namespace
}  // namespace quire::kernels::cuda::test
