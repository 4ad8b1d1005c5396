#include "worker/adapters/peft_adapter.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/load/model_roots.h"
#include "worker/load/safetensors.h"
#include "worker/load/sha256.h"

namespace quire {
namespace {

using kernels::DType;
using kernels::LoraTarget;
using load::Tensor;

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kWeightsFile = "adapter_model.safetensors";
constexpr const char* kPickleFile = "adapter_model.bin";
constexpr std::string_view kPeftPrefix = "base_model.model.";
constexpr std::string_view kSuffixA = ".lora_A.weight";
constexpr std::string_view kSuffixB = ".lora_B.weight";

bool IsThere(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

absl::StatusOr<std::string> ReadConfigText(const load::ModelRoots& roots, const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const load::OpenFile file, roots.Open(path));
  if (file.size() > static_cast<int64_t>(kMaxAdapterConfigBytes)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": has ", file.size(), " bytes, at most ", kMaxAdapterConfigBytes, " are read"));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  const ssize_t count = pread(file.fd(), text.data(), text.size(), 0);
  if (count != file.size()) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": cannot read it"));
  }
  return text;
}

absl::Status CheckFolder(const std::string& folder) {
  struct stat info {};
  if (stat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(folder, ": is no folder; give one that PEFT saved (",
                                          kConfigFile, ", ", kWeightsFile, ")"));
}

absl::Status RefuseTensor(const Tensor& tensor, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(tensor.file, ": tensor \"", tensor.name, "\" ", AbslView(what)));
}

// Why a tensor that is no matrix of a low-rank adapter is not served.
std::string_view WhyNotServed(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"lora_magnitude_vector", "belongs to DoRA, which is not served"},
      {"lora_embedding_", "is of an adapter of embeddings, which are not served"},
      {".base_layer.",
       "is of an adapter of single parameters (target_parameters), which are not served"},
      {".modules_to_save.", "is of a whole module that was saved (modules_to_save), not served"},
      {".lora_B.bias", "is a bias of B (lora_bias), not served"},
  };
  for (const auto& [part, why] : kKinds) {
    if (name.find(part) != name.npos) return why;
  }
  return "is none that an adapter's file may hold; expected are "
         "base_model.model.MODULE.lora_A.weight and .lora_B.weight";
}

std::string_view WhyNoTarget(std::string_view module) {
  if (module.find("experts") != module.npos) {
    return ", whose experts take no adapters here";
  }
  if (module.ends_with("lm_head") || module.ends_with("embed_tokens")) {
    return ": embeddings and the head take no adapters here";
  }
  return "";
}

bool IsFiniteAt(DType type, const std::byte* at) {
  if (type == DType::kF32) {
    float value = 0.0f;
    std::memcpy(&value, at, sizeof(value));
    return std::isfinite(value);
  }
  const uint16_t exponent = type == DType::kF16 ? 0x7c00 : 0x7f80;
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return (bits & exponent) != exponent;
}

absl::Status CheckNumbers(const Tensor& tensor) {
  if (!tensor.type.has_value()) {
    return RefuseTensor(
        tensor, absl::StrCat("has type ", tensor.type_name, ", served are F32, F16 and BF16"));
  }
  const auto bytes = static_cast<size_t>(kernels::BlockBytes(*tensor.type));
  for (size_t at = 0; at < tensor.bytes.size(); at += bytes) {
    if (IsFiniteAt(*tensor.type, tensor.bytes.data() + at)) continue;
    return RefuseTensor(tensor, absl::StrCat("holds a number that is not finite, at ", at / bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const Tensor& tensor, int64_t rows, int64_t cols) {
  if (tensor.shape == std::vector<int64_t>{rows, cols}) return absl::OkStatus();
  return RefuseTensor(tensor, absl::StrCat("has shape ", tensor.ShapeText(), ", expected is [",
                                           rows, ", ", cols, "]"));
}

int64_t ElementBytes(const Tensor& tensor) { return kernels::BlockBytes(*tensor.type); }

// ColumnsFor first … first + count of a matrix.
std::vector<std::byte> ColumnsFor(const Tensor& tensor, int64_t first, int64_t count) {
  const int64_t bytes = ElementBytes(tensor);
  std::vector<std::byte> copy(static_cast<size_t>(tensor.shape[0] * count * bytes));
  for (int64_t row = 0; row < tensor.shape[0]; ++row) {
    std::memcpy(copy.data() + row * count * bytes,
                tensor.bytes.data() + (row * tensor.shape[1] + first) * bytes,
                static_cast<size_t>(count * bytes));
  }
  return copy;
}

std::vector<std::byte> RowsFor(const Tensor& tensor, const LoraTarget& target) {
  const int64_t bytes = ElementBytes(tensor) * tensor.shape[1];
  std::vector<std::byte> copy(static_cast<size_t>(target.Width() * bytes));
  std::byte* to = copy.data();
  for (const LoraTarget::Run& run : target.row_runs) {
    std::memcpy(to, tensor.bytes.data() + run.begin * bytes,
                static_cast<size_t>(run.count * bytes));
    to += run.count * bytes;
  }
  return copy;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeftAdapter>> PeftAdapter::Open(
    const std::string& folder, const std::vector<std::string>& allowed_roots, int max_rank) {
  QUIRE_RETURN_IF_ERROR(CheckFolder(folder));
  QUIRE_ASSIGN_OR_RETURN(const load::ModelRoots roots, load::ModelRoots::Of(folder, allowed_roots));
  return Open(folder, Bounds{roots, max_rank});
}

absl::StatusOr<std::unique_ptr<PeftAdapter>> PeftAdapter::Open(const std::string& folder,
                                                               const Bounds& bounds) {
  QUIRE_CHECK(bounds.max_rank >= 1 && bounds.max_rank <= kMaxLoraRank);
  QUIRE_RETURN_IF_ERROR(CheckFolder(folder));
  const std::string config_path = absl::StrCat(folder, "/", kConfigFile);
  const std::string weights_path = absl::StrCat(folder, "/", kWeightsFile);
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadConfigText(bounds.roots, config_path));
  QUIRE_ASSIGN_OR_RETURN(const PeftConfig config, PeftConfig::Read(text, config_path));
  if (!IsThere(weights_path) && IsThere(absl::StrCat(folder, "/", kPickleFile))) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, "/", kPickleFile,
                     ": is a pickle, which may run code: not read; save "
                     "the adapter as ",
                     kWeightsFile, " (save_pretrained of PEFT does)"));
  }
  auto adapter = std::make_unique<PeftAdapter>();
  QUIRE_ASSIGN_OR_RETURN(const load::OpenFile file, bounds.roots.Open(weights_path));
  if (bounds.max_file_bytes > 0 && file.size() > bounds.max_file_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(weights_path, ": has ", file.size(), " bytes; an adapter of this model of at ",
                     "most rank ", bounds.max_rank, " has at most ", bounds.max_file_bytes));
  }
  QUIRE_ASSIGN_OR_RETURN(adapter->file_, load::MappedFile::Copy(file, weights_path));
  QUIRE_RETURN_IF_ERROR(
      load::ReadSafetensors(adapter->file_->bytes(), weights_path, adapter->tensors_));
  QUIRE_RETURN_IF_ERROR(adapter->ReadModules(config, config_path, bounds.max_rank));
  adapter->digest_ = adapter->Digest();
  return adapter;
}

absl::Status PeftAdapter::TakeTensor(const Tensor& tensor) {
  std::string_view module = tensor.name;
  const bool a = module.ends_with(kSuffixA);
  if (!module.starts_with(kPeftPrefix) || (!a && !module.ends_with(kSuffixB)) ||
      module.find(".base_layer.") != module.npos ||
      module.size() <= kPeftPrefix.size() + kSuffixA.size()) {
    return RefuseTensor(tensor, WhyNotServed(tensor.name));
  }
  module.remove_prefix(kPeftPrefix.size());
  module.remove_suffix(kSuffixA.size());
  if (module.size() > kMaxModuleNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        tensor.file, ": tensor \"", tensor.name.substr(0, 60), "…\" is of a module with ",
        module.size(), " bytes of name, at most ", kMaxModuleNameBytes, " are read"));
  }
  Module& own = modules_[std::string(module)];
  if (modules_.size() > kMaxAdapterModules) {
    return absl::InvalidArgumentError(absl::StrCat(tensor.file, ": has more than the ",
                                                   kMaxAdapterModules, " modules that are read"));
  }
  (a ? own.a : own.b) = &tensor;
  return CheckNumbers(tensor);
}

absl::Status PeftAdapter::ReadModules(const PeftConfig& config, const std::string& config_path,
                                      int max_rank) {
  for (const auto& entry : tensors_.all()) QUIRE_RETURN_IF_ERROR(TakeTensor(entry.second));
  if (modules_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_->path(), ": holds no tensors; expected are ",
                     "base_model.model.MODULE.lora_A.weight and .lora_B.weight"));
  }
  PatternSteps steps;
  for (const auto& entry : modules_) {
    const absl::StatusOr<PeftConfig::Module> said = config.Of(entry.first, steps);
    if (!said.ok()) return Annotate(said.status(), config_path);
    QUIRE_RETURN_IF_ERROR(CheckModule(entry.first, *said, max_rank));
  }
  return absl::OkStatus();
}

absl::Status PeftAdapter::CheckModule(const std::string& name, const PeftConfig::Module& said,
                                      int max_rank) {
  static_assert(kSuffixA.size() == kSuffixB.size());
  Module& module = modules_[name];
  if (module.a == nullptr || module.b == nullptr) {
    const bool a = module.a != nullptr;
    return RefuseTensor(a ? *module.a : *module.b,
                        absl::StrCat("has no partner \"", AbslView(kPeftPrefix), name,
                                     AbslView(a ? kSuffixB : kSuffixA), "\""));
  }
  if (!said.targeted) {
    return RefuseTensor(*module.a, absl::StrCat("is of a module that target_modules of ",
                                                kConfigFile, " does not name"));
  }
  module.rank = said.rank;
  module.scale = said.scale;
  if (!std::isfinite(static_cast<float>(module.scale))) {
    return RefuseTensor(*module.a, absl::StrCat("would be scaled by ", module.scale));
  }
  if (module.rank > max_rank) {
    return RefuseTensor(*module.a,
                        absl::StrCat("has rank ", module.rank, ", --max-lora-rank is ", max_rank,
                                     "; --max-lora-rank ", module.rank, " fits"));
  }
  if (module.a->shape.size() != 2 || module.a->shape[0] != module.rank) {
    return RefuseTensor(
        *module.a, absl::StrCat("has shape ", module.a->ShapeText(), ", expected is [", module.rank,
                                ", inputs]: ", kConfigFile, " says rank ", module.rank));
  }
  if (module.b->shape.size() != 2 || module.b->shape[1] != module.rank) {
    return RefuseTensor(
        *module.b, absl::StrCat("has shape ", module.b->ShapeText(), ", expected is [outputs, ",
                                module.rank, "]: ", kConfigFile, " says rank ", module.rank));
  }
  rank_ = std::max(rank_, module.rank);
  return absl::OkStatus();
}

std::string PeftAdapter::Digest() const {
  load::Sha256 digest;
  digest.AddText("quire adapter 1");
  digest.AddNumber(modules_.size());
  for (const auto& [name, module] : modules_) {
    digest.AddText(name);
    digest.AddNumber(static_cast<uint64_t>(module.rank));
    digest.AddNumber(std::bit_cast<uint64_t>(module.scale));
    for (const Tensor* tensor : {module.a, module.b}) {
      digest.AddText(tensor->name);
      digest.AddText(tensor->type_name);
      digest.AddNumber(tensor->shape.size());
      for (const int64_t size : tensor->shape) digest.AddNumber(static_cast<uint64_t>(size));
      digest.AddNumber(tensor->bytes.size());
      digest.Add(tensor->bytes);
    }
  }
  return digest.Hex();
}

absl::StatusOr<RankAdapter> PeftAdapter::For(const std::vector<LoraTarget>& targets) const {
  RankAdapter result;
  result.adapter.targets.resize(targets.size());
  std::set<std::string_view> used;
  for (size_t i = 0; i < targets.size(); ++i) {
    const LoraTarget& target = targets[i];
    const Module* found = nullptr;
    for (const std::string& name : target.modules) {
      const auto at = modules_.find(name);
      if (at == modules_.end()) continue;
      if (found != nullptr) {
        return RefuseTensor(*at->second.a,
                            absl::StrCat("is of the same module as \"", found->a->name,
                                         "\"; one of them is expected"));
      }
      found = &at->second;
      used.insert(at->first);
    }
    if (found == nullptr) continue;
    QUIRE_RETURN_IF_ERROR(CheckShape(*found->a, found->rank, target.cols));
    QUIRE_RETURN_IF_ERROR(CheckShape(*found->b, target.rows, found->rank));
    kernels::AdapterMatrices& matrices = result.adapter.targets[i];
    result.memory.push_back(ColumnsFor(*found->a, target.first_col, target.col_count));
    matrices.a = {*found->a->type, found->rank, target.col_count, result.memory.back().data()};
    result.memory.push_back(RowsFor(*found->b, target));
    matrices.b = {*found->b->type, target.Width(), found->rank, result.memory.back().data()};
    matrices.scale = static_cast<float>(found->scale);
  }
  for (const auto& [name, module] : modules_) {
    if (used.count(name) > 0) continue;
    const std::string_view example =
        targets.empty() ? "" : std::string_view(targets.front().modules.front());
    return RefuseTensor(*module.a, absl::StrCat("is of no module of this model that takes adapters",
                                                AbslView(WhyNoTarget(name)), "; one that does is ",
                                                AbslView(example)));
  }
  return result;
}

}  // namespace quire
