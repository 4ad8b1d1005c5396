// Low-rank adapters (LoRA, Hu et al., arXiv 2106.09685): what a row's own adapter adds to the
// products of a program, and an adapter's matrices.
//
// Values. A row without an adapter skips the op, so it keeps the bits that a program without it
// gives. With several ranks a module's rows are cut as its weight's rows are, and then A is whole;
// or its columns, and then A has these columns, and the sum over the ranks adds the parts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/program_ids.h"
#include "kernels/tensor.h"

namespace quire::kernels {

// A module of the model, as far as one product of this rank computes it.
struct LoraTarget {
  std::vector<std::string> modules;  // its possible names, the most common first
  int64_t rows = 0;                  // of the whole module
  int64_t cols = 0;
  struct Run {
    int64_t begin = 0;
    int64_t count = 0;
  };
  std::vector<Run> row_runs;  // the module's rows in the order of the product's columns
  int64_t first_col = 0;      // of those that this rank multiplies
  int64_t col_count = 0;

  int64_t Width() const {
    int64_t width = 0;
    for (const Run& run : row_runs) width += run.count;
    return width;
  }
};

// out[t][column …] += scale · s · B (A · in[t]) for each slice, where the adapter of t's row has A,
// B and s for the slice's target. Nothing where the row has no adapter, or its adapter leaves the
// target alone.
struct LoraOp {
  struct Slice {
    int target = 0;  // of StepProgram::lora_targets
    int column = 0;  // its first one in `out`
  };
  std::vector<Slice> slices;
  float scale = 1.0f;
  BufferId in = kNoId;
  BufferId out = kNoId;
};

// What an adapter has for one target. Without rows in `a` it has nothing.
struct AdapterMatrices {
  WeightSource a;      // [rank, col_count]
  WeightSource b;      // [Width(), rank]
  float scale = 1.0f;  // s: alpha / rank, or alpha / √rank
};

// By StepProgram::lora_targets; the memory is the caller's.
struct Adapter {
  std::vector<AdapterMatrices> targets;
};

// An adapter as a device keeps it.
class AdapterWeights {
 public:
  virtual ~AdapterWeights() = default;
  virtual int64_t Bytes() const = 0;
};

}  // namespace quire::kernels
