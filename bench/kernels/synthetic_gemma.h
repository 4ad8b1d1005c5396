// A step program of Gemma 3 270M's shape with random weights of the types of its Q4_K_M file.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/step_program.h"

namespace quire::bench {

class SyntheticGemma {
 public:
  SyntheticGemma();
  const kernels::StepProgram& program() const { return program_; }

 private:
  kernels::WeightId Matrix(std::vector<kernels::WeightSource> parts);
  kernels::WeightSource Source(kernels::DType type, int64_t rows, int64_t cols);
  kernels::WeightId Ones(int64_t cols);
  void AddLayer(int layer);

  kernels::StepProgram program_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  uint32_t random_ = 1;
};

}  // namespace quire::bench
