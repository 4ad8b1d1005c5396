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
  std::vector<float*> tiles_of;  // by job; null: another job packs the same rows
  std::vector<int> first_unit;   // by job, and the end

  void Reserve(size_t count) {
    jobs.reserve(count);
    tiles_of.reserve(count);
    first_unit.reserve(count + 1);
  }
  void Clear() {
    jobs.clear();
    tiles_of.clear();
    first_unit.assign(1, 0);
  }
};

}  // namespace quire::kernels::cpu
