// What holds for the steps of every kind of model: checks over a StepBed, and runtimes that count
// graphs or bring a step to the device with a part of an earlier one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/backend/step_inputs.h"
#include "tests/kernels/cuda/backend/step_bed.h"

namespace quire::kernels::cuda::test {

// Counts the graphs that are launched.
class CountingRuntime : public emulate::EmulatedRuntime {
 public:
  explicit CountingRuntime(uint64_t seed = 9) : EmulatedRuntime(seed, emulate::Checks::kNone) {}
  Error LaunchGraph(GraphId graph, StreamId stream) override;

  std::set<uint32_t> graphs;  // that were launched
  int graph_launches = 0;
};

// Keeps the inputs of the last step of a bucket, and lets Spoil put a part of them behind the rows
// of the next ones: the padding was forgotten.
class StaleRuntime : public CountingRuntime {
 public:
  using CountingRuntime::CountingRuntime;
  Error Copy(StreamId stream, void* to, const void* from, size_t bytes) override;

  StepShape shape;  // of the bucket
  int rows = 0;     // that there are in it
  bool stale = false;

 protected:
  virtual void Spoil(const InputPlaces& places, const std::vector<int32_t>& before,
                     std::vector<int32_t>& piece) = 0;

 private:
  const void* inputs_ = nullptr;
  std::vector<int32_t> before_;
  std::deque<std::vector<int32_t>> pieces_;  // copies read them late
};

// Without graphs, one sequence after another.
std::vector<Answer> ServeAlone(const std::vector<Sequence>& sequences, size_t tokens,
                               const BedOptions& like);

// With and without graphs, one and two steps in flight, in changing company: the answers of
// sequences alone. A bed of 8 rows has four graphs, of 1, 2, 4 and 8.
void ExpectGraphsAndFlightsChangeNoBit(const std::vector<Sequence>& sequences, size_t tokens,
                                       BedOptions options);

// Five of eight rows of a bucket come with what Spoil leaves of the other three. Returns in how
// many of so many seeds an answer differs; none does where nothing is spoilt.
int CountFoundStale(const BedOptions& options, size_t tokens, int seeds,
                    const std::function<std::unique_ptr<StaleRuntime>(uint64_t seed)>& make);
template <class Runtime>
int CountFoundStale(const BedOptions& options, size_t tokens, int seeds) {
  return CountFoundStale(options, tokens, seeds,
                         [](uint64_t seed) { return std::make_unique<Runtime>(seed); });
}

// Kernels that have run.
std::set<std::string> KernelsOf(StepBed& bed);

// Prompts of these lengths, `rows` at a time, run no new kernel and take no memory once all is
// loaded.
void ExpectNothingNewOnceLoaded(BedOptions options, const std::vector<size_t>& lengths,
                                size_t rows = 1);

// Weights and workspace take what the backend estimates.
void ExpectMemoryAsPlanned(StepBed& bed);

}  // namespace quire::kernels::cuda::test
