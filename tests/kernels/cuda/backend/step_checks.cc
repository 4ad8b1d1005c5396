#include "tests/kernels/cuda/backend/step_checks.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "kernels/cuda/backend/workspace.h"

namespace quire::kernels::cuda::test {

using emulate::Checks;
using emulate::EmulatedRuntime;

runtime::Error CountingRuntime::LaunchGraph(GraphId graph, StreamId stream) {
  graphs.insert(static_cast<uint32_t>(graph));
  ++graph_launches;
  return EmulatedRuntime::LaunchGraph(graph, stream);
}

runtime::Error StaleRuntime::Copy(StreamId stream, void* to, const void* from, size_t bytes) {
  const InputPlaces places(shape);
  if (shape.tokens > 0 && inputs_ == nullptr) inputs_ = to;  // a step begins with its piece
  if (to != inputs_ || bytes != 4 * static_cast<size_t>(places.words)) {
    return CountingRuntime::Copy(stream, to, from, bytes);
  }
  const auto* words = static_cast<const int32_t*>(from);
  std::vector<int32_t>& piece = pieces_.emplace_back(words, words + places.words);
  if (stale) {
    Spoil(places, before_, piece);
  } else {
    before_ = piece;
  }
  return CountingRuntime::Copy(stream, to, piece.data(), bytes);
}

std::vector<Answer> ServeAlone(const std::vector<Sequence>& sequences, size_t tokens,
                               const BedOptions& like) {
  BedOptions options = like;
  options.start.graphs = false;
  StepBed bed(options);
  std::vector<Answer> answers = bed.Serve(sequences, tokens, {.alone = true});
  EXPECT_TRUE(bed.Works()) << bed.program().Failure();
  return answers;
}

void ExpectGraphsAndFlightsChangeNoBit(const std::vector<Sequence>& sequences, size_t tokens,
                                       BedOptions options) {
  const std::vector<Answer> alone = ServeAlone(sequences, tokens, options);
  for (const bool graphs : {false, true}) {
    options.start.graphs = graphs;
    auto runtime = std::make_unique<CountingRuntime>();
    CountingRuntime& counts = *runtime;
    StepBed bed(options, std::move(runtime));
    ASSERT_EQ(bed.program().Failure(), "");
    for (const int in_flight : {1, 2}) {
      for (const uint64_t seed : {1u, 2u}) {
        SCOPED_TRACE(testing::Message() << graphs << in_flight << seed);
        const auto answers = bed.Serve(sequences, tokens, {in_flight, 6, seed});
        ASSERT_EQ(bed.program().Failure(), "");
        ASSERT_EQ(answers, alone);
      }
    }
    EXPECT_EQ(counts.graph_launches > 0, graphs);
    EXPECT_EQ(counts.graphs.size(), graphs ? 4u : 0u);
  }
}

int CountFoundStale(const BedOptions& options, size_t tokens, int seeds,
                    const std::function<std::unique_ptr<StaleRuntime>(uint64_t seed)>& make) {
  const std::vector<Sequence> eight = RandomSequences(8, 12, 15);
  const std::vector<Sequence> five(eight.begin(), eight.begin() + 5);
  const std::vector<Answer> alone = ServeAlone(five, tokens, options);
  int found = 0;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(seeds); ++seed) {
    for (const bool stale : {false, true}) {
      std::unique_ptr<StaleRuntime> runtime = make(seed);
      StaleRuntime& planted = *runtime;
      StepBed bed(options, std::move(runtime));
      planted.shape = ShapeOfBucket(8, 1, RulesOf(bed.model(), bed.options()));
      planted.rows = 5;
      bed.Serve(eight, 3, {2, 10, seed});
      planted.stale = stale;
      // Slots and pages are dealt again: what rows of before would write to belongs to others now.
      const bool same = bed.Serve(five, tokens, {2, 10, seed + 10}) == alone;
      if (!stale) {
        EXPECT_TRUE(same) << seed;
      }
      found += stale && !same ? 1 : 0;
    }
  }
  return found;
}

std::set<std::string> KernelsOf(StepBed& bed) {
  std::set<std::string> all;
  for (const auto& [name, counters] : bed.runtime().counters()) all.insert(name);
  return all;
}

void ExpectNothingNewOnceLoaded(BedOptions options, const std::vector<size_t>& lengths,
                                size_t rows) {
  options.start.warm_up = true;
  StepBed bed(options);
  ASSERT_EQ(bed.program().Failure(), "");
  const std::set<std::string> loaded = KernelsOf(bed);
  const DeviceMemoryUse memory = bed.program().DeviceMemory();
  const uint64_t calls = bed.runtime().memory_calls();
  for (const size_t length : lengths) {
    const Sequence one{std::vector<int32_t>(length, 5), 0.0f, 1};
    bed.Serve(std::vector<Sequence>(rows, one), 3, {.in_flight = 2});
  }
  bed.Serve(RandomSequences(static_cast<size_t>(options.max_rows), 18, 18), 6, {2, 6, 1});
  ASSERT_EQ(bed.program().Failure(), "");
  EXPECT_EQ(KernelsOf(bed), loaded);
  EXPECT_EQ(bed.runtime().memory_calls(), calls) << "a step took or gave back memory";
  EXPECT_EQ(bed.program().DeviceMemory().free, memory.free);
}

void ExpectMemoryAsPlanned(StepBed& bed) {
  const auto backend = MakeCudaBackend(std::make_unique<EmulatedRuntime>(1, Checks::kNone),
                                       {"emulated", "emulated grid", {}, nullptr, nullptr});
  EXPECT_EQ(bed.program().WeightBytes(), backend->EstimateWeightBytes(bed.model()));
  EXPECT_EQ(bed.program().WorkspaceBytes(),
            backend->EstimateWorkspaceBytes(bed.model(), bed.options()));
}

}  // namespace quire::kernels::cuda::test
