// Sampling of a step's rows by all ranks together: the rounds of many rows share one collective.
//
// Owned by a loaded program of one of several ranks; called from its computing thread. Invariants:
// 1. All ranks pass the same rows in the same order, each its own slice of their logits.
// 2. Memory is allocated when it is made; a step allocates nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/sampling/sample_row.h"
#include "kernels/sampling/slice_sampler.h"
#include "kernels/step_program.h"

namespace quire::kernels::cpu {

class RankSampling {
 public:
  // Rows whose rounds are exchanged together; each needs memory for a slice of candidates.
  static constexpr int kRowsAtOnce = 8;

  // `max_rows`: the most rows of one Run.
  RankSampling(const StepProgram& program, Communicator& communicator, int max_rows);
  static int64_t ReservedBytes(const StepProgram& program, int max_rows);

  // This rank's logits: rows of `stride` floats, its ids first.
  struct Logits {
    float* data = nullptr;
    int64_t stride = 0;
  };
  // Fills in the outputs, the same on all ranks. False when a collective has failed.
  bool Run(const Logits& logits, std::span<const SampleRow> rows, std::span<SampleOutput> outputs,
           ThreadPool& pool);

 private:
  bool RunRounds(int rows, ThreadPool& pool);

  Communicator& communicator_;
  VocabularySlice slice_;
  int vocab_size_;
  std::vector<sampling::SliceSampler> samplers_;
  std::vector<uint64_t> mine_;
  std::vector<uint64_t> all_;
  std::vector<size_t> offsets_;  // in bytes, of each row's message in a rank's
};

}  // namespace quire::kernels::cpu
