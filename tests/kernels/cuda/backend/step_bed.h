// A few sequences that a loaded program prefills and then decodes in steps of changing company:
// what the runner does, by hand.
//
// Owned by one test.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/collectives/shared_group.h"
#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/emulate/emulated_runtime.h"
#include "tests/support/tiny_program.h"

namespace quire::kernels::cuda::test {

struct Sequence {
  std::vector<int32_t> prompt;
  float temperature = 0.0f;
  uint64_t seed = 0;
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> logprob_bits;
  bool operator==(const Answer&) const = default;
};

std::vector<Sequence> RandomSequences(size_t count, size_t longest, uint64_t seed);

struct BedOptions {
  StartOptions start{.graphs = true, .warm_up = false, .margin_bytes = 0};
  int max_rows = 8;
  int max_tokens = 160;
  int max_positions = 96;
  int64_t pages = 200;
  int experts = 0;      // of each layer's mixture
  bool hybrid = false;  // the model has recurrent layers
  // Of several each has a device of its own and the same steps; the bed holds their samples to each
  // other. They meet in host memory, or by what stands in for NCCL.
  int ranks = 1;
  std::shared_ptr<const nccl::Library> nccl = nullptr;
  int64_t wait_micros = 120'000'000;  // of ranks for each other: the machine may be busy
  int64_t capture_wait_micros = 0;
  std::shared_ptr<const cublaslt::Library> cublaslt = nullptr;
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = nullptr;  // of rank 0
  bool latents = false;  // the model's attention is over latents
};

class StepBed {
 public:
  // Takes the runtime, of rank 0; null: an emulated one that only computes.
  explicit StepBed(const BedOptions& options,
                   std::unique_ptr<emulate::EmulatedRuntime> runtime = nullptr);
  ~StepBed();

  struct Way {
    int in_flight = 1;   // steps
    int of_ten = 10;     // chances of a sequence to be in a step; at least one is
    uint64_t seed = 1;   // of slots, pages and company
    bool alone = false;  // one sequence after another
    int64_t pages = 0;   // that there are; 0: all that were asked for
  };
  // Each sequence gets so many tokens.
  std::vector<Answer> Serve(const std::vector<Sequence>& sequences, size_t tokens, const Way& way);

  LoadedProgram& program(int rank = 0) { return *ranks_[static_cast<size_t>(rank)].program; }
  emulate::EmulatedRuntime& runtime(int rank = 0) {
    return *ranks_[static_cast<size_t>(rank)].runtime;
  }
  const ProgramOptions& options() const { return load_; }
  const StepProgram& model() const { return ranks_.front().model->program; }
  // No rank has failed.
  bool Works() const;
  // Of waits of ranks for each other.
  void SetDeadline(int64_t wait_micros);
  // Told before each launch how many there were before.
  void BeforeLaunch(std::function<void(int step)> hook) { before_launch_ = std::move(hook); }
  // The ranks' group is taken down from outside.
  void AbortGroup() { group_->Abort(); }
  int MaxInFlight() const { return ranks_.front().backend->MaxInFlight(model()); }

 private:
  struct Row;
  struct Step;
  struct Rank {
    std::unique_ptr<quire::test::TinyProgram> model;
    std::unique_ptr<Communicator> communicator;
    emulate::EmulatedRuntime* runtime = nullptr;  // the backend's
    std::unique_ptr<Backend> backend;
    std::unique_ptr<LoadedProgram> program;
  };
  // One thread for each rank: they wait for each other.
  void OnEach(const std::function<void(Rank& rank)>& body);
  void Launch(std::vector<Row>& rows, const std::vector<size_t>& members, Step& step, bool ahead);
  void Collect(std::vector<Row>& rows, const Step& step);
  void GivePages(Row& row, size_t index, std::mt19937_64& random, std::vector<int32_t>& free_pages);

  ProgramOptions load_;  // of rank 0
  std::unique_ptr<SharedGroup> group_;
  std::vector<Rank> ranks_;
  std::function<void(int step)> before_launch_;
  int launches_ = 0;
};

}  // namespace quire::kernels::cuda::test
