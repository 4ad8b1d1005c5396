// Steps of several ranks that meet by what stands in for NCCL: graphs with their collectives, two
// steps in flight, first runs before anything is served, and the end of a group that hangs.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/kernels/cuda/backend/step_checks.h"
#include "tests/kernels/cuda/nccl/fake_nccl_file.h"

namespace quire::kernels::cuda::test {
namespace {

using emulate::Checks;
using emulate::EmulatedRuntime;

constexpr int kRanks = 2;
// Sums behind the embedding and two products of each of four layers.
constexpr int kCollectives = 1 + 2 * 4;
// Of a step whose rows are drawn or have logprobs, behind its graph: peaks, and what needs them.
constexpr int kRounds = 2;
constexpr int64_t kHours = 36'000'000'000;

class CudaRankedStepsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(fake_.Open(), ""); }
  BedOptions Ranked() const {
    BedOptions options;
    options.ranks = kRanks;
    options.nccl = fake_.library();
    return options;
  }
  // With ranks that meet in host memory, one sequence after another.
  static std::vector<Answer> Alone(const std::vector<Sequence>& sequences, size_t tokens) {
    BedOptions options;
    options.ranks = kRanks;
    StepBed bed(options);
    EXPECT_EQ(bed.MaxInFlight(), 1);
    return bed.Serve(sequences, tokens, {.alone = true});
  }

  FakeNcclFile fake_;
};

TEST_F(CudaRankedStepsTest, GraphsWithCollectivesAndStepsInFlightChangeNoBit) {
  const std::vector<Sequence> sequences = RandomSequences(5, 20, 11);
  constexpr size_t kTokens = 6;
  const std::vector<Answer> alone = Alone(sequences, kTokens);
  for (const bool graphs : {false, true}) {
    BedOptions options = Ranked();
    options.start.graphs = graphs;
    auto runtime = std::make_unique<CountingRuntime>();
    CountingRuntime& counts = *runtime;
    StepBed bed(options, std::move(runtime));
    ASSERT_EQ(bed.MaxInFlight(), 2);
    ASSERT_EQ(bed.program().MaxInFlight(), 2);
    for (const int in_flight : {1, 2}) {
      SCOPED_TRACE(testing::Message() << graphs << in_flight);
      ASSERT_EQ(bed.Serve(sequences, kTokens, {in_flight, 6, 3}), alone);
      ASSERT_TRUE(bed.Works()) << bed.program().Failure() << bed.program(1).Failure();
    }
    EXPECT_EQ(counts.graph_launches > 0, graphs);
  }
}

// Hybrids with experts, and experts behind latent attention, as Qwen3-Next and DeepSeek have them.
TEST_F(CudaRankedStepsTest, GraphsOfStatesLatentsAndExpertsChangeNoBit) {
  const std::vector<Sequence> sequences = RandomSequences(5, 20, 11);
  constexpr size_t kTokens = 4;
  for (const bool latents : {false, true}) {
    SCOPED_TRACE(latents);
    BedOptions options;
    options.ranks = kRanks;
    options.experts = 5;
    options.latents = latents;
    options.hybrid = !latents;
    const std::vector<Answer> alone = ServeAlone(sequences, kTokens, options);
    options.nccl = fake_.library();
    options.start.graphs = true;
    auto runtime = std::make_unique<CountingRuntime>();
    CountingRuntime& counts = *runtime;
    StepBed bed(options, std::move(runtime));
    ASSERT_EQ(bed.Serve(sequences, kTokens, {2, 6, 3}), alone);
    ASSERT_TRUE(bed.Works()) << bed.program().Failure() << bed.program(1).Failure();
    EXPECT_GT(counts.graph_launches, 0);
  }
}

TEST_F(CudaRankedStepsTest, EachShapeRunsFirstWithItsCollectives) {
  for (const bool warm_up : {false, true}) {
    fake_.Order({});
    BedOptions options = Ranked();
    options.start.warm_up = warm_up;
    StepBed bed(options);
    ASSERT_TRUE(bed.Works()) << bed.program().Failure() << bed.program(1).Failure();
    // 1, 2, 4 and 8 rows, and prefills of 16, 32, 64 and more; the largest sum; then a greedy row
    // and one that is drawn. What is captured does not run.
    EXPECT_EQ(fake_.Counts().ops, warm_up ? kRanks * (8 * kCollectives + 1 + 1 + kRounds) : 0);
  }
}

// Also where ranks meet in host memory, and capture nothing.
TEST_F(CudaRankedStepsTest, RanksOverHostMemoryRunEachShapeFirst) {
  const std::vector<Sequence> sequences = RandomSequences(3, 12, 16);
  BedOptions options;
  options.ranks = kRanks;
  options.start.warm_up = true;
  StepBed bed(options);
  EXPECT_FALSE(bed.runtime().counters().empty()) << "nothing has run before the first step";
  EXPECT_EQ(bed.Serve(sequences, 4, {1, 7, 3}), Alone(sequences, 4));
}

TEST_F(CudaRankedStepsTest, OnceLoadedMemoryIsConstantOnEveryRank) {
  BedOptions options = Ranked();
  options.start.warm_up = true;
  StepBed bed(options);
  uint64_t calls[kRanks];
  int64_t unused[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    calls[rank] = bed.runtime(rank).memory_calls();
    unused[rank] = bed.program(rank).DeviceMemory().free;
    EXPECT_GT(unused[rank], 0);
  }
  bed.Serve(RandomSequences(8, 18, 18), 10, {2, 6, 1});
  ASSERT_TRUE(bed.Works()) << bed.program().Failure();
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(bed.runtime(rank).memory_calls(), calls[rank]) << "a step took or gave back memory";
    EXPECT_EQ(bed.program(rank).DeviceMemory().free, unused[rank]);
  }
}

// Deadlines of a start: a first run waits as the communicator has it, a capture, in which nobody
// computes, as long as it is told.
TEST_F(CudaRankedStepsTest, AStartThatHangsEndsAtItsDeadlines) {
  for (const bool warm_up : {true, false}) {
    SCOPED_TRACE(warm_up);
    FakeNcclOrders orders;
    orders.rank = 1;
    BedOptions options = Ranked();
    options.start.warm_up = warm_up;
    options.wait_micros = warm_up ? 300'000 : kHours;
    if (warm_up) {
      orders.hang_at = kCollectives + 2;
    } else {
      orders.polls_of_op = 1 << 30;
      options.capture_wait_micros = 300'000;
    }
    fake_.Order(orders);
    StepBed bed(options);
    for (int rank = 0; rank < kRanks; ++rank) {
      // In a capture only who still asks is late: the other has heard of it at its next call.
      EXPECT_NE(bed.program(rank).Failure(), "") << rank;
      EXPECT_EQ(bed.program(rank).PageCount(), 0) << "pages behind a start that failed";
    }
    const std::string both = bed.program(0).Failure() + bed.program(1).Failure();
    EXPECT_NE(both.find(warm_up ? "did not end in time" : "still under way at the deadline"),
              std::string::npos)
        << both;
    EXPECT_EQ(fake_.Counts().stuck, 0) << "a graph or a capture was there when the group ended";
  }
}

// The first step is a prefill of all; a rank then stays away from a collective of a replayed graph.
class HangInAReplay : public CudaRankedStepsTest {
 protected:
  void Hang(int at = kCollectives + kRounds + 4) {
    FakeNcclOrders orders;
    orders.rank = 1;
    orders.hang_at = at;
    fake_.Order(orders);
  }
  void ExpectTakenDown(StepBed& bed) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::string failure = bed.program(rank).Failure();
      EXPECT_EQ(failure.rfind("a collective failed: ", 0), 0u) << failure;
      EXPECT_TRUE(bed.program(rank).Done());
    }
    EXPECT_EQ(fake_.Counts().aborted, kRanks);
    EXPECT_EQ(fake_.Counts().stuck, 0) << "graphs were there when the group was to end";
  }
};

// So does one behind it, in which samplers tell each other what they have found.
TEST_F(HangInAReplay, EndsAtTheDeadlineOfItsStep) {
  for (const int at : {kCollectives + kRounds + 4, 2 * kCollectives + kRounds + 1}) {
    SCOPED_TRACE(at);
    auto runtime = std::make_unique<CountingRuntime>();
    CountingRuntime& counts = *runtime;
    StepBed bed(Ranked(), std::move(runtime));
    Hang(at);
    bed.SetDeadline(500'000);
    bed.Serve(RandomSequences(3, 12, 17), 6, {2, 10, 1});  // ends, with whatever tokens
    EXPECT_GT(counts.graph_launches, 0);
    ExpectTakenDown(bed);
    const std::string both = bed.program(0).Failure() + bed.program(1).Failure();
    EXPECT_NE(both.find("did not end in time"), std::string::npos) << both;
  }
}

TEST_F(HangInAReplay, EndsWhenTheGroupIsTakenDown) {
  StepBed bed(Ranked());
  Hang();
  bed.SetDeadline(kHours);
  bed.BeforeLaunch([&bed](int step) {
    if (step == 2) bed.AbortGroup();  // behind the replay that hangs
  });
  bed.Serve(RandomSequences(3, 12, 17), 6, {2, 10, 1});
  ExpectTakenDown(bed);
}

// A deadline belongs to the step that it was set for, also where a later one is in flight with a
// longer one.
TEST_F(HangInAReplay, AStepKeepsTheDeadlineThatItWasLaunchedWith) {
  StepBed bed(Ranked());
  Hang();
  bed.SetDeadline(500'000);
  bed.BeforeLaunch([&bed](int step) {
    if (step == 2) bed.SetDeadline(kHours);
  });
  bed.Serve(RandomSequences(3, 12, 17), 6, {2, 10, 1});
  ExpectTakenDown(bed);
}

}  // namespace
}  // namespace quire::kernels::cuda::test
