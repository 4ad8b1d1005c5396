// Memory for the mixtures of experts of a program, and the order in which experts see their rows.
//
// Owned by a CpuProgram; reserved at load, used by one op at a time. A step with more tokens than
// kMoeTokens is processed in slices with the memory of one: a row's result does not depend on the
// others.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/step_program.h"

namespace quire::kernels::cpu {

inline constexpr int kMoeTokens = 512;

class MoeWorkspace {
 public:
  MoeWorkspace() = default;
  // Nothing is reserved where the program has no mixture.
  // `rounds`: in the class w8a8, whose rows take more room.
  MoeWorkspace(const StepProgram& program, int max_tokens, bool rounds);
  static int64_t Estimate(const StepProgram& program, int max_tokens, bool rounds);

  int64_t Bytes() const { return memory_.size(); }
  void Poison();

  // Fills row_of, token_of and first_row from the first tokens · per_token entries of `chosen`:
  // rows by expert from `first` on, those of one expert in the order of tokens. Other ranks'
  // experts have none.
  void SortByExpert(int tokens, int per_token, int first, int experts);

  float* scores = nullptr;      // RouteJob::scores
  int32_t* chosen = nullptr;    // RouteJob::chosen
  float* weights = nullptr;     // RouteJob::weights
  int32_t* row_of = nullptr;    // by (token, choice): its row among all experts' rows, or −1
  int32_t* token_of = nullptr;  // by row
  float* rows = nullptr;        // what experts read, later what they make, by row
  float* inner = nullptr;       // between their two products, by row
  float* tiles = nullptr;       // rows as the products take them
  std::vector<int> first_row;   // by expert, and the end
  std::vector<int> next_row;    // while sorting

 private:
  Pages memory_;
};

}  // namespace quire::kernels::cpu
