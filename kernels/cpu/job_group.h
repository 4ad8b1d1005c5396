// Products of one op that run together, each with a matrix and rows of its own: experts, heads.
//
// Owned by a CpuProgram; reserved at load, used by one op at a time.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/cpu/kernel_table.h"

namespace quire::kernels::cpu {

// That the rows of one product take in register tiles: few of them are padded, to less than twice
// as many.
inline int64_t GroupTileFloats(int64_t rows, int64_t k) {
  return (rows > 16 ? rows : 2 * rows) * ((k + 15) / 16 * 16);
}

struct JobGroup {
  std::vector<LinearJob> jobs;
  std::vector<float*> spaces;   // by job: where its rows are prepared; null: another job does it
  std::vector<int> first_unit;  // by job, and the end
  std::vector<RoundedInput> rounded;  // LinearJob::x_rounded of the jobs

  // `inputs`: the most that one matrix rounds.
  void Reserve(size_t count, size_t inputs) {
    jobs.reserve(count);
    spaces.reserve(count);
    first_unit.reserve(count + 1);
    rounded.reserve(count * inputs);
  }
  void Clear() {
    jobs.clear();
    spaces.clear();
    first_unit.assign(1, 0);
    rounded.clear();
  }
  // Places that stay where they are until Clear.
  RoundedInput* TakeRounded(size_t inputs) {
    rounded.resize(rounded.size() + inputs);
    return rounded.data() + rounded.size() - inputs;
  }
};

}  // namespace quire::kernels::cpu
