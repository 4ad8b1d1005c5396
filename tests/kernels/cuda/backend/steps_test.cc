// Steps as graphs and without, one and two in flight, in changing company: the same bits; and what
// becomes of a device that fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/backend/workspace.h"
#include "tests/kernels/cuda/backend/step_checks.h"

namespace quire::kernels::cuda::test {
namespace {

using emulate::Checks;
using emulate::EmulatedRuntime;

TEST(CudaStepsTest, GraphsAndStepsInFlightChangeNoBit) {
  ExpectGraphsAndFlightsChangeNoBit(RandomSequences(7, 20, 11), 10, {});
}

TEST(CudaStepsTest, EveryBucketIsReplayed) {
  BedOptions options;
  options.max_rows = 40;  // the last bucket is no power of two
  options.max_tokens = 200;
  options.max_positions = 32;
  const std::vector<Sequence> sequences = RandomSequences(40, 4, 12);
  constexpr size_t kTokens = 3;
  const std::vector<Answer> alone = ServeAlone(sequences, kTokens, options);
  auto runtime = std::make_unique<CountingRuntime>(9);
  CountingRuntime& counts = *runtime;
  StepBed bed(options, std::move(runtime));
  for (const size_t rows : {1, 2, 3, 5, 9, 17, 31, 32, 33, 40}) {
    SCOPED_TRACE(rows);
    const std::vector<Sequence> some(sequences.begin(),
                                     sequences.begin() + static_cast<ptrdiff_t>(rows));
    const auto answers = bed.Serve(some, kTokens, {2, 10, rows});
    ASSERT_TRUE(std::equal(answers.begin(), answers.end(), alone.begin()));
  }
  EXPECT_EQ(counts.graphs.size(), 7u);  // 1, 2, 4, 8, 16, 32, 40
}

// Contexts of more than one span of 512 keys have graphs of their own.
TEST(CudaStepsTest, LongContextsAreReplayed) {
  BedOptions options;
  options.max_rows = 2;
  options.max_tokens = 560;
  options.max_positions = 560;
  options.pages = 240;
  std::vector<Sequence> sequences = RandomSequences(2, 8, 13);
  std::vector<Sequence> longer = RandomSequences(1, 1, 14);
  for (int32_t i = 0; i < 510; ++i) longer[0].prompt.push_back(i * 7 % 97);
  sequences[1] = longer[0];
  constexpr size_t kTokens = 5;  // from the first span into the second
  const std::vector<Answer> alone = ServeAlone(sequences, kTokens, options);
  auto runtime = std::make_unique<CountingRuntime>(9);
  CountingRuntime& counts = *runtime;
  StepBed bed(options, std::move(runtime));
  ASSERT_EQ(bed.Serve(sequences, kTokens, {2, 10, 4}), alone);
  EXPECT_EQ(counts.graphs.size(), 2u);
}

// Leaves tokens, positions and pages of an earlier step behind the rows' own.
class StaleTailRuntime : public StaleRuntime {
 public:
  using StaleRuntime::StaleRuntime;

 private:
  void Spoil(const InputPlaces& places, const std::vector<int32_t>& before,
             std::vector<int32_t>& piece) override {
    const auto keep = [&](int64_t list) {
      std::copy(before.begin() + list + rows, before.begin() + list + shape.tokens,
                piece.begin() + list + rows);
    };
    keep(places.tokens);
    keep(places.positions);
    for (int group = 0; group < shape.groups; ++group) {
      keep(places.pages + int64_t{group} * shape.tokens);
    }
  }
};

TEST(CudaStepsTest, AStaleRowInAGraphIsFound) {
  BedOptions options;
  options.max_positions = 32;
  options.pages = 32;  // of two groups and eight sequences: few that no sequence has
  EXPECT_GE(CountFoundStale<StaleTailRuntime>(options, 14, 4), 2);
}

TEST(CudaStepsTest, StartUpMayRunEachShapeFirst) {
  const std::vector<Sequence> sequences = RandomSequences(3, 12, 16);
  const std::vector<Answer> alone = ServeAlone(sequences, 4, {});
  BedOptions options;
  options.start.warm_up = true;
  StepBed bed(options, std::make_unique<EmulatedRuntime>(4, Checks::kNone));
  ASSERT_EQ(bed.program().Failure(), "");
  EXPECT_EQ(bed.Serve(sequences, 4, {2, 7, 3}), alone);
}

// A device loads a kernel when it first runs, and takes memory for it.
TEST(CudaStepsTest, NoKernelRunsForTheFirstTimeOnceLoaded) {
  for (const int max_rows : {2, 8}) {
    SCOPED_TRACE(max_rows);
    BedOptions options;
    options.max_rows = max_rows;
    ExpectNothingNewOnceLoaded(options, {3, 12, 20, 40, 80});
  }
}

// What a step may bring is reserved for the context and the rows that there are, which are few
// here.
TEST(CudaStepsTest, StartUpFitsIntoWhatShortContextsNeed) {
  BedOptions options;
  options.start.warm_up = true;
  options.max_rows = 1;
  options.max_tokens = 128;
  options.max_positions = 32;
  StepBed bed(options, std::make_unique<EmulatedRuntime>(4, Checks::kNone));
  EXPECT_EQ(bed.program().Failure(), "");
}

TEST(CudaStepsTest, OnceLoadedMemoryIsConstant) {
  BedOptions options;
  options.start.warm_up = true;
  StepBed bed(options);
  const DeviceMemoryUse loaded = bed.program().DeviceMemory();
  EXPECT_GT(loaded.free, 0);
  EXPECT_LT(loaded.free, loaded.total);
  const uint64_t calls = bed.runtime().memory_calls();
  for (const int in_flight : {1, 2}) {
    bed.Serve(RandomSequences(8, 18, 18), 12, {in_flight, 6, 1});
  }
  ASSERT_EQ(bed.program().Failure(), "");
  EXPECT_EQ(bed.runtime().memory_calls(), calls) << "a step took or gave back memory";
  EXPECT_EQ(bed.program().DeviceMemory().free, loaded.free);
}

TEST(CudaStepsTest, PagesAreWhatIsLeftLessAMargin) {
  constexpr int64_t kMargin = int64_t{1} << 20;
  BedOptions options;
  options.pages = 2000;
  StepBed whole(options);
  ASSERT_EQ(whole.program().PageCount(), 2000);
  const int64_t page_bytes = whole.options().kv.page_bytes;
  EXPECT_EQ(whole.program().PoolBytes(), 2000 * page_bytes);
  const DeviceMemoryUse use = whole.program().DeviceMemory();
  const auto load = [&](int64_t total) {
    auto runtime = std::make_unique<EmulatedRuntime>(1, Checks::kNone);
    runtime->LimitMemory(static_cast<size_t>(total));
    options.start.margin_bytes = kMargin;
    return std::make_unique<StepBed>(options, std::move(runtime));
  };
  const int64_t used = use.total - use.free;
  const auto fitting = load(used + kMargin);
  EXPECT_EQ(fitting->program().PageCount(), 2000);
  const auto less = load(used + kMargin - 500 * page_bytes);
  EXPECT_EQ(less->program().Failure(), "");
  EXPECT_LE(less->program().PageCount(), 1500);
  EXPECT_GT(less->program().PageCount(), 1500 - (int64_t{64} << 10) / page_bytes - 1);
  EXPECT_GE(less->program().DeviceMemory().free, kMargin);
  // Pages that there are may all be used.
  BedOptions same = options;
  same.start.graphs = false;
  const std::vector<Sequence> sequences = RandomSequences(3, 12, 19);
  EXPECT_EQ(less->Serve(sequences, 4, {.pages = less->program().PageCount()}),
            ServeAlone(sequences, 4, same));
  const auto nothing = load(used + kMargin - 2000 * page_bytes);
  EXPECT_EQ(nothing->program().Failure(),
            "no memory is left on the device for a page of keys and values");
  const auto still_less = load(used - 2001 * page_bytes - kMargin);
  EXPECT_NE(still_less->program().Failure(), "");
}

// Says so from the given call on.
class FailingRuntime : public EmulatedRuntime {
 public:
  explicit FailingRuntime(const std::string& call)
      : EmulatedRuntime(2, Checks::kNone), call_(call) {}
  Error LaunchGraph(GraphId graph, StreamId stream) override {
    return Fails("graph") ? "an illegal address" : EmulatedRuntime::LaunchGraph(graph, stream);
  }
  Error Synchronize(EventId event) override {
    return Fails("event") ? "an illegal address" : EmulatedRuntime::Synchronize(event);
  }
  bool armed = false;

 private:
  bool Fails(const std::string& call) const { return armed && call == call_; }
  const std::string call_;
};

TEST(CudaStepsTest, ADeviceThatFailsInAGraphOrInFlightIsLost) {
  for (const char* call : {"graph", "event"}) {
    auto runtime = std::make_unique<FailingRuntime>(call);
    FailingRuntime& failing = *runtime;
    StepBed bed({}, std::move(runtime));
    const std::vector<Sequence> sequences = RandomSequences(3, 12, 17);
    bed.Serve(sequences, 2, {2, 10, 1});
    EXPECT_EQ(bed.program().Failure(), "");
    failing.armed = true;
    bed.Serve(sequences, 3, {2, 10, 1});  // ends, with whatever tokens
    EXPECT_EQ(bed.program().Failure(), "an illegal address");
    EXPECT_TRUE(bed.program().Done());
  }
}

}  // namespace
}  // namespace quire::kernels::cuda::test
