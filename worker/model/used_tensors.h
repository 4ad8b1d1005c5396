// Which of a model's tensors a program uses: a tensor of a layer that belongs to no part of the
// family's is a file that Quire would compute wrongly.
//
// Owned by a ProgramBuilder; used on the loading thread.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "worker/load/model_config.h"
#include "worker/load/model_files.h"
#include "worker/model/tensor_names.h"

namespace quire::model {

class UsedTensors {
 public:
  void Add(const load::Tensor* tensor) { tensors_.insert(tensor); }
  // A quantised module: all tensors below its name belong to it.
  void AddModule(const std::string& module) { modules_.insert(module); }

  // INVALID_ARGUMENT names a tensor of a layer that nothing uses, except for what files may hold
  // beside their weights (tables of angles, scales of a cache), for layers that are skipped, and
  // for layers after the last: those predict further tokens.
  absl::Status CheckLayers(const load::ModelFiles& files, const TensorNaming& naming,
                           const load::ModelConfig& config) const;

 private:
  bool Uses(const load::Tensor& tensor) const;

  std::set<const load::Tensor*> tensors_;
  std::set<std::string> modules_;
};

}  // namespace quire::model
