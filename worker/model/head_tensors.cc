#include "worker/model/head_tensors.h"

#include <sys/stat.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"

namespace quire::model {

using kernels::WeightId;
using kernels::WeightSource;

namespace {

// Files that are code when they are read.
constexpr const char* kPickles[] = {"medusa_lm_head.pt", "pytorch_model.bin"};

bool Exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<load::ModelFiles>> OpenHeadFiles(const HeadOptions& options) {
  absl::StatusOr<std::unique_ptr<load::ModelFiles>> files =
      load::ModelFiles::Open(options.path, options.allowed_roots);
  if (!files.ok()) {
    for (const char* pickle : kPickles) {
      const std::string path = absl::StrCat(options.path, "/", pickle);
      if (!Exists(path)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": is a pickle, which may run code when it is read; save its tensors as ",
          options.path,
          "/model.safetensors (safetensors.torch.save_file of what torch.load with "
          "weights_only=True returns)"));
    }
    return files.status();
  }
  if ((*files)->is_gguf()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.path,
                     ": is a GGUF file; give the folder of a draft head with config.json and "
                     "*.safetensors"));
  }
  if ((*files)->quantisation() != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.path, "/config.json: the draft head is quantised, served are F32, F16 and BF16"));
  }
  return files;
}

const load::Tensor* HeadTensors::Look(const std::string& name) const {
  for (const std::string& prefix : prefixes_) {
    if (const load::Tensor* tensor = files_.tensors().Find(prefix + name)) return tensor;
  }
  return nullptr;
}

void HeadTensors::Fail(const std::string& what) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(absl::StrCat(files_.path(), ": ", AbslView(what)));
  }
}

const load::Tensor* HeadTensors::Find(const std::string& name, const std::vector<int64_t>& shape) {
  if (!status_.ok()) return nullptr;
  const load::Tensor* tensor = Look(name);
  if (tensor == nullptr) {
    Fail("tensor \"" + name + "\" is missing, the configuration demands it");
    return nullptr;
  }
  bool fits = tensor->shape.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = shape[i] < 0 || shape[i] == tensor->shape[i];
  }
  if (!fits) {
    Fail(absl::StrCat("tensor \"", tensor->name, "\" has shape ", tensor->ShapeText(),
                      ", expected is [", absl::StrJoin(shape, ", "), "]"));
    return nullptr;
  }
  used_.insert(tensor->name);
  return tensor;
}

const load::Tensor* HeadTensors::FindFloats(const std::string& name,
                                            const std::vector<int64_t>& shape) {
  const load::Tensor* tensor = Find(name, shape);
  if (tensor == nullptr) return nullptr;
  if (tensor->type.has_value() && IsFloat(*tensor->type)) return tensor;
  Fail("tensor \"" + tensor->name + "\" has type " + tensor->type_name +
       ", served are F32, F16 and BF16");
  return nullptr;
}

WeightSource HeadTensors::Source(const load::Tensor& tensor, int64_t rows, int64_t cols) {
  WeightSource source{*tensor.type, rows, cols, tensor.bytes.data()};
  QUIRE_CHECK(static_cast<size_t>(source.Bytes()) == tensor.bytes.size());
  const uintptr_t alignment = source.type == kernels::DType::kF32 ? 4 : 2;
  if (reinterpret_cast<uintptr_t>(source.data) % alignment == 0) return source;
  // A file may place numbers at odd addresses; kernels read them in place.
  std::byte* copy = memory_.Allocate(source.Bytes());
  std::memcpy(copy, source.data, tensor.bytes.size());
  source.data = copy;
  return source;
}

WeightId HeadTensors::Matrix(kernels::StepProgram& program, std::initializer_list<Rows> parts,
                             int64_t cols) {
  kernels::Weight weight;
  weight.cols = cols;
  for (const Rows& part : parts) {
    const load::Tensor* tensor = FindFloats(part.name, {part.rows, cols});
    if (tensor == nullptr) return kernels::kNoId;
    if (weight.name.empty()) weight.name = tensor->name;
    weight.parts.push_back(memory_.Convert(Source(*tensor, part.rows, cols), tensor->name));
    weight.rows += part.rows;
  }
  program.weights.push_back(std::move(weight));
  return static_cast<WeightId>(program.weights.size()) - 1;
}

WeightId HeadTensors::Vector(kernels::StepProgram& program, std::initializer_list<Rows> parts) {
  std::vector<float> values;
  std::string name;
  for (const Rows& part : parts) {
    const load::Tensor* tensor = FindFloats(part.name, {part.rows});
    if (tensor == nullptr) return kernels::kNoId;
    if (name.empty()) name = tensor->name;
    const WeightSource source = Source(*tensor, 1, part.rows);
    for (int64_t i = 0; i < part.rows; ++i) values.push_back(FloatAt(source, i));
  }
  const auto size = static_cast<int64_t>(values.size());
  std::byte* const data = memory_.Allocate(4 * size);
  std::memcpy(data, values.data(), 4 * values.size());
  program.weights.push_back({name, {{kernels::DType::kF32, 1, size, data}}, 1, size});
  return static_cast<WeightId>(program.weights.size()) - 1;
}

WeightId HeadTensors::Picked(kernels::StepProgram& program, const Rows& tensor, int64_t cols,
                             const std::vector<int32_t>& rows) {
  const load::Tensor* found = FindFloats(tensor.name, {tensor.rows, cols});
  if (found == nullptr) return kernels::kNoId;
  const WeightSource whole = Source(*found, tensor.rows, cols);
  const auto count = static_cast<int64_t>(rows.size());
  kernels::Weight weight{found->name, {}, count, cols};
  weight.parts.push_back(memory_.Later(whole.type, count, cols, [whole, rows](std::byte* to) {
    for (const int32_t row : rows) {
      std::memcpy(to, whole.Row(row), static_cast<size_t>(whole.RowBytes()));
      to += whole.RowBytes();
    }
  }));
  program.weights.push_back(std::move(weight));
  return static_cast<WeightId>(program.weights.size()) - 1;
}

std::vector<int64_t> HeadTensors::Ids(const std::string& name, int64_t count) {
  const load::Tensor* tensor = Find(name, {count});
  if (tensor == nullptr) return {};
  const bool wide = tensor->type_name == "I64";
  if (!wide && tensor->type_name != "I32") {
    Fail("tensor \"" + tensor->name + "\" has type " + tensor->type_name +
         ", expected is I64 or I32");
    return {};
  }
  std::vector<int64_t> ids;
  const auto length = static_cast<size_t>(tensor->shape.front());
  for (size_t i = 0; i < length; ++i) {
    int64_t id = 0;
    if (wide) {
      std::memcpy(&id, tensor->bytes.data() + 8 * i, 8);
    } else {
      int32_t narrow = 0;
      std::memcpy(&narrow, tensor->bytes.data() + 4 * i, 4);
      id = narrow;
    }
    ids.push_back(id);
  }
  return ids;
}

void HeadTensors::Ignore(const std::string& name, int64_t count) {
  if (Has(name)) Find(name, {count});
}

absl::Status HeadTensors::Finish() {
  for (const auto& [name, tensor] : files_.tensors().all()) {
    if (used_.count(name) > 0) continue;
    Fail(absl::StrCat("tensor \"", name, "\" of shape ", tensor.ShapeText(),
                      " belongs to no part of such a draft head with this configuration"));
  }
  return status_;
}

}  // namespace quire::model
