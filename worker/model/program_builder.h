// Writes step programs: finds tensors, checks their shapes, and appends the blocks that families
// share.
//
// Lives while one program is built, on the loading thread. The first error sticks: later calls do
// nothing, and Finish returns it, so that a family file reads as a plain list.
// 1. A weight that is in the program has exactly the shape that the configuration demands.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/step_program.h"
#include "worker/load/model_config.h"
#include "worker/load/model_files.h"
#include "worker/model/tensor_names.h"
#include "worker/model/weight_memory.h"

namespace quire::model {

class ProgramBuilder {
 public:
  // All three must outlive the program.
  ProgramBuilder(const load::ModelConfig& config, const load::ModelFiles& files,
                 WeightMemory& memory);

  const load::ModelConfig& config() const { return config_; }

  // A part of `rows` rows stacked into one matrix.
  struct Stack {
    Part part;
    int64_t rows;
  };
  kernels::WeightId Matrix(std::initializer_list<Stack> stacks, int64_t cols, int layer = kNoLayer);
  // A bias or norm of the parts' lengths together: [1, sum].
  kernels::WeightId Vector(std::initializer_list<Stack> stacks, std::string_view suffix,
                           int layer = kNoLayer);
  kernels::WeightId Ones(int64_t length);

  kernels::BufferId Buffer(std::string_view name, int64_t width, bool sampled_rows_only = false);
  int AddRope(const load::RopeConfig& rope);

  template <typename Op>
  void Add(Op op) {
    program_.ops.emplace_back(std::move(op));
  }

  // Whether the checkpoint has the part.
  bool Has(Part part, std::string_view suffix, int layer = kNoLayer) const;

  absl::StatusOr<kernels::StepProgram> Finish();

 private:
  // Null, with the error kept, when it is missing or not shaped so. `shape` of one entry also fits
  // [1, n].
  const load::Tensor* Find(Part part, std::string_view suffix, int layer,
                           std::vector<int64_t> shape);
  kernels::WeightSource Source(const load::Tensor& tensor, int64_t rows, int64_t cols);
  // GGUF's "llama" keeps the rows of q and k in pairs; returns them in halves, as everyone else has
  // them.
  kernels::WeightSource Deinterleave(const kernels::WeightSource& source);
  bool IsInterleaved(Part part) const;
  std::vector<float> RopeFactors();
  void Fail(const absl::Status& status);

  const load::ModelConfig& config_;
  const load::ModelFiles& files_;
  WeightMemory& memory_;
  kernels::StepProgram program_;
  absl::Status status_;
};

}  // namespace quire::model
