// Steps of a model with recurrent layers: states in pages by the tables of slots, as graphs and
// without, one and two steps in flight, in changing company: the same bits.
#include <gtest/gtest.h>

#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/backend/workspace.h"
#include "tests/kernels/cuda/backend/step_bed.h"

namespace quire::kernels::cuda::test {
namespace {

using emulate::Checks;
using emulate::EmulatedRuntime;

BedOptions Hybrid() {
  BedOptions options;
  options.hybrid = true;
  options.pages = 400;
  return options;
}

std::vector<Answer> Alone(const std::vector<Sequence>& sequences, size_t tokens,
                          const BedOptions& like) {
  BedOptions options = like;
  options.start.graphs = false;
  options.nccl = nullptr;
  StepBed bed(options);
  return bed.Serve(sequences, tokens, {.alone = true});
}

class CountingRuntime : public EmulatedRuntime {
 public:
  explicit CountingRuntime(uint64_t seed) : EmulatedRuntime(seed, Checks::kNone) {}
  Error LaunchGraph(GraphId graph, StreamId stream) override {
    graphs.insert(static_cast<uint32_t>(graph));
    return EmulatedRuntime::LaunchGraph(graph, stream);
  }
  std::set<uint32_t> graphs;  // that were launched
};

TEST(CudaHybridStepsTest, GraphsAndStepsInFlightChangeNoBit) {
  std::vector<Sequence> sequences = RandomSequences(7, 60, 21);
  sequences[3].prompt.resize(75, 4);  // of several runs
  constexpr size_t kTokens = 10;
  BedOptions options = Hybrid();
  options.max_tokens = 420;
  const std::vector<Answer> alone = Alone(sequences, kTokens, options);
  for (const bool graphs : {false, true}) {
    options.start.graphs = graphs;
    auto runtime = std::make_unique<CountingRuntime>(9);
    CountingRuntime& counts = *runtime;
    StepBed bed(options, std::move(runtime));
    ASSERT_EQ(bed.program().Failure(), "");
    ASSERT_GE(bed.options().kv.states.groups, 2) << "states go on in further pages";
    for (const int in_flight : {1, 2}) {
      SCOPED_TRACE(testing::Message() << graphs << in_flight);
      const auto answers = bed.Serve(sequences, kTokens, {in_flight, 6, 5});
      ASSERT_EQ(bed.program().Failure(), "");
      ASSERT_EQ(answers, alone);
    }
    EXPECT_EQ(counts.graphs.size(), graphs ? 4u : 0u);  // of 1, 2, 4 and 8 rows
  }
}

// Brings a bucket to the device with runs of states of an earlier step behind its own.
class StaleRunsRuntime : public CountingRuntime {
 public:
  using CountingRuntime::CountingRuntime;
  Error Copy(StreamId stream, void* to, const void* from, size_t bytes) override {
    const InputPlaces places(shape);
    if (shape.tokens > 0 && inputs_ == nullptr) inputs_ = to;  // a step begins with its piece
    if (to != inputs_ || bytes != 4 * static_cast<size_t>(places.words)) {
      return CountingRuntime::Copy(stream, to, from, bytes);
    }
    const auto* words = static_cast<const int32_t*>(from);
    std::vector<int32_t>& piece = pieces_.emplace_back(words, words + places.words);
    if (!stale) {
      before_ = piece;
    } else {
      const int64_t list = places.state_runs;
      std::copy(before_.begin() + list + 2 * rows, before_.begin() + list + 2 * shape.state_runs,
                piece.begin() + list + 2 * rows);
    }
    return CountingRuntime::Copy(stream, to, piece.data(), bytes);
  }
  StepShape shape;  // of the bucket
  int rows = 0;     // that there are in it
  bool stale = false;

 private:
  const void* inputs_ = nullptr;
  std::vector<int32_t> before_;
  std::deque<std::vector<int32_t>> pieces_;  // copies read them late
};

// A sequence whose run stands twice in a step is advanced twice.
TEST(CudaHybridStepsTest, AStaleRunInAGraphIsFound) {
  const BedOptions options = Hybrid();
  const std::vector<Sequence> eight = RandomSequences(8, 12, 22);
  const std::vector<Sequence> five(eight.begin(), eight.begin() + 5);
  constexpr size_t kTokens = 5;
  const std::vector<Answer> alone = Alone(five, kTokens, options);
  int found = 0;
  for (const uint64_t seed : {1u, 2u}) {
    for (const bool stale : {false, true}) {
      auto runtime = std::make_unique<StaleRunsRuntime>(seed);
      StaleRunsRuntime& planted = *runtime;
      StepBed bed(options, std::move(runtime));
      planted.shape = ShapeOfBucket(8, 1, RulesOf(bed.model(), bed.options()));
      ASSERT_EQ(planted.shape.state_runs, 8);
      planted.rows = 5;
      bed.Serve(eight, 3, {2, 10, seed});
      planted.stale = stale;
      const bool same = bed.Serve(five, kTokens, {2, 10, seed + 10}) == alone;
      if (!stale) {
        EXPECT_TRUE(same);
      }
      found += stale && !same ? 1 : 0;
    }
  }
  EXPECT_GE(found, 1);
}

TEST(CudaHybridStepsTest, OnceLoadedNoKernelIsNewAndMemoryIsConstant) {
  BedOptions options = Hybrid();
  options.start.warm_up = true;
  StepBed bed(options);
  ASSERT_EQ(bed.program().Failure(), "");
  const auto names = [&bed] {
    std::set<std::string> all;
    for (const auto& [name, counters] : bed.runtime().counters()) all.insert(name);
    return all;
  };
  const std::set<std::string> loaded = names();
  EXPECT_TRUE(loaded.contains("gated_delta_128"));
  const DeviceMemoryUse memory = bed.program().DeviceMemory();
  const uint64_t calls = bed.runtime().memory_calls();
  for (const size_t length : {3, 40, 80}) {
    bed.Serve({{std::vector<int32_t>(length, 5), 0.0f, 1}}, 3, {.in_flight = 2});
  }
  ASSERT_EQ(bed.program().Failure(), "");
  EXPECT_EQ(names(), loaded);
  EXPECT_EQ(bed.runtime().memory_calls(), calls) << "a step took or gave back memory";
  EXPECT_EQ(bed.program().DeviceMemory().free, memory.free);
}

// What is planned is what is taken, pages aside.
TEST(CudaHybridStepsTest, WorkspaceIsWhatWasPlanned) {
  StepBed bed(Hybrid());
  const auto backend = MakeCudaBackend(std::make_unique<EmulatedRuntime>(1, Checks::kNone),
                                       {"emulated", "emulated grid", {}, nullptr, nullptr});
  EXPECT_EQ(bed.program().WorkspaceBytes(),
            backend->EstimateWorkspaceBytes(bed.model(), bed.options()));
  EXPECT_EQ(bed.program().WeightBytes(), backend->EstimateWeightBytes(bed.model()));
}

// Each has its heads of the states.
TEST(CudaHybridStepsTest, RanksAnswerAlikeInAnyCompany) {
  const std::vector<Sequence> sequences = RandomSequences(4, 40, 23);
  BedOptions options = Hybrid();
  options.ranks = 2;
  const std::vector<Answer> alone = Alone(sequences, 5, options);
  StepBed bed(options);
  ASSERT_TRUE(bed.Works());
  EXPECT_EQ(bed.Serve(sequences, 5, {1, 6, 3}), alone);
  EXPECT_TRUE(bed.Works());
}

}  // namespace
}  // namespace quire::kernels::cuda::test
