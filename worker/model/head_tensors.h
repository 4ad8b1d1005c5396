// The tensors of a draft head's own files, by their names: what ProgramBuilder is for whole models.
//
// Lives while a head is built, on the loading thread. The first error sticks: later calls do
// nothing, and Finish returns it.
// 1. A weight in a program has exactly the shape that the caller demands.
// 2. Every tensor of the files is used, or Finish fails naming one that is not.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/step_program.h"
#include "worker/load/model_files.h"
#include "worker/model/draft_head.h"
#include "worker/model/weight_memory.h"

namespace quire::model {

// A head's folder: as ModelFiles::Open, and pickles and quantised heads are refused by name.
absl::StatusOr<std::unique_ptr<load::ModelFiles>> OpenHeadFiles(const HeadOptions& options);

class HeadTensors {
 public:
  // Both outlive the programs. `prefixes`: what names may begin with, "" among them.
  HeadTensors(const load::ModelFiles& files, WeightMemory& memory,
              std::vector<std::string> prefixes)
      : files_(files), memory_(memory), prefixes_(std::move(prefixes)) {}

  // Null where there is none.
  const load::Tensor* Look(const std::string& name) const;
  bool Has(const std::string& name) const { return Look(name) != nullptr; }

  struct Rows {
    std::string name;
    int64_t rows;
  };
  // The tensors below one another, each [rows, cols] of floats.
  kernels::WeightId Matrix(kernels::StepProgram& program, std::initializer_list<Rows> parts,
                           int64_t cols);
  // The tensors behind one another, each [rows] of floats.
  kernels::WeightId Vector(kernels::StepProgram& program, std::initializer_list<Rows> parts);
  // The listed rows of a tensor [rows, cols], in the type of the file.
  kernels::WeightId Picked(kernels::StepProgram& program, const Rows& tensor, int64_t cols,
                           const std::vector<int32_t>& rows);
  // A tensor [count] of I32 or I64; count −1: any.
  std::vector<int64_t> Ids(const std::string& name, int64_t count);
  // A tensor that holds nothing that is computed with.
  void Ignore(const std::string& name, int64_t count);

  void Fail(const std::string& what);  // behind the path of the files
  bool ok() const { return status_.ok(); }
  absl::Status Finish();

 private:
  const load::Tensor* Find(const std::string& name, const std::vector<int64_t>& shape);
  const load::Tensor* FindFloats(const std::string& name, const std::vector<int64_t>& shape);
  kernels::WeightSource Source(const load::Tensor& tensor, int64_t rows, int64_t cols);

  const load::ModelFiles& files_;
  WeightMemory& memory_;
  const std::vector<std::string> prefixes_;
  std::set<std::string> used_;
  absl::Status status_;
};

}  // namespace quire::model
