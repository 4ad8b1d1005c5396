// A few sequences that a loaded program prefills and then decodes in steps of changing company:
// what the runner does, by hand.
//
// Owned by one test.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kernels/backend.h"
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
};

class StepBed {
 public:
  // Takes the runtime; null: an emulated one that only computes.
  explicit StepBed(const BedOptions& options,
                   std::unique_ptr<emulate::EmulatedRuntime> runtime = nullptr);

  struct Way {
    int in_flight = 1;   // steps
    int of_ten = 10;     // chances of a sequence to be in a step; at least one is
    uint64_t seed = 1;   // of slots, pages and company
    bool alone = false;  // one sequence after another
    int64_t pages = 0;   // that there are; 0: all that were asked for
  };
  // Each sequence gets so many tokens.
  std::vector<Answer> Serve(const std::vector<Sequence>& sequences, size_t tokens, const Way& way);

  LoadedProgram& program() { return *program_; }
  emulate::EmulatedRuntime& runtime() { return *runtime_; }
  const ProgramOptions& options() const { return load_; }
  const StepProgram& model() const { return model_.program; }

 private:
  struct Row;
  struct Step;
  void Launch(std::vector<Row>& rows, const std::vector<size_t>& members, Step& step, bool ahead);
  void Collect(std::vector<Row>& rows, const Step& step);
  void GivePages(Row& row, size_t index, std::mt19937_64& random, std::vector<int32_t>& free_pages);

  quire::test::TinyProgram model_{5};
  emulate::EmulatedRuntime* runtime_ = nullptr;  // the backend's
  std::unique_ptr<Backend> backend_;
  ProgramOptions load_;
  std::unique_ptr<LoadedProgram> program_;
};

}  // namespace quire::kernels::cuda::test
