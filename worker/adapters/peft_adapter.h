// A low-rank adapter (LoRA) as PEFT saves it: a folder with adapter_config.json and
// adapter_model.safetensors.
//
// Owned by its loader; used on that thread. The folder is hostile input, and may change while it is
// read. Every tensor of the file is used, or the adapter is refused in one line that names file,
// tensor or key, what was found and what is expected.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/lora_ops.h"
#include "worker/adapters/peft_config.h"
#include "worker/load/mapped_file.h"
#include "worker/load/model_roots.h"
#include "worker/load/tensor_table.h"

namespace quire {

inline constexpr size_t kMaxAdapterModules = 16'384;  // of one adapter
inline constexpr size_t kMaxModuleNameBytes = 512;

// The matrices of an adapter for one rank's program, and the memory that they are in.
struct RankAdapter {
  kernels::Adapter adapter;
  std::vector<std::vector<std::byte>> memory;
};

class PeftAdapter {
 public:
  // Reads all of the folder; links may lead where worker/load/model_roots.h permits. A module of
  // more than `max_rank` is refused.
  static absl::StatusOr<std::unique_ptr<PeftAdapter>> Open(
      const std::string& folder, const std::vector<std::string>& allowed_roots, int max_rank);
  // The same, where `roots` says which files may be read. A file of weights with more than
  // `max_file_bytes` is refused.
  struct Bounds {
    const load::ModelRoots& roots;
    int max_rank = 0;
    int64_t max_file_bytes = 0;  // 0: no limit
  };
  static absl::StatusOr<std::unique_ptr<PeftAdapter>> Open(const std::string& folder,
                                                           const Bounds& bounds);

  // SHA-256, in hexadecimal digits, of rank and scale of each module and of all tensors: adapters
  // with one digest compute the same, whatever their names and places are.
  const std::string& digest() const { return digest_; }
  int rank() const { return rank_; }  // the largest of its modules

  // Its parts for the targets of a program. INVALID_ARGUMENT names a module that has no target, and
  // a matrix of another shape than the target's.
  absl::StatusOr<RankAdapter> For(const std::vector<kernels::LoraTarget>& targets) const;

 private:
  struct Module {
    const load::Tensor* a = nullptr;
    const load::Tensor* b = nullptr;
    int rank = 0;
    double scale = 1.0;
  };

  absl::Status ReadModules(const PeftConfig& config, const std::string& config_path, int max_rank);
  // Adds a tensor to its module.
  absl::Status TakeTensor(const load::Tensor& tensor);
  absl::Status CheckModule(const std::string& name, const PeftConfig::Module& said, int max_rank);
  std::string Digest() const;

  std::unique_ptr<load::MappedFile> file_;
  load::TensorTable tensors_;
  std::map<std::string, Module> modules_;  // by name in the base model
  std::string digest_;
  int rank_ = 0;
};

}  // namespace quire
