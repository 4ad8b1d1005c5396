#include "worker/load/tensor_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/load/checked.h"

namespace quire::load {

std::string Tensor::ShapeText() const { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

absl::StatusOr<uint64_t> TensorBytes(std::span<const int64_t> shape, uint64_t block,
                                     uint64_t block_bytes) {
  if (shape.size() > static_cast<size_t>(kMaxTensorRank)) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", shape.size(), " dimensions, at most ", kMaxTensorRank, " are read"));
  }
  uint64_t elements = 1;
  for (int64_t dimension : shape) {
    if (dimension < 0 || dimension > kMaxTensorDimension) {
      return absl::InvalidArgumentError(absl::StrCat("has a dimension of ", dimension,
                                                     ", allowed are 0 to ", kMaxTensorDimension));
    }
    const std::optional<uint64_t> product =
        CheckedMultiply(elements, static_cast<uint64_t>(dimension));
    if (!product.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("has a shape whose size overflows: [", absl::StrJoin(shape, ", "), "]"));
    }
    elements = *product;
  }
  const uint64_t inner = shape.empty() ? 1 : static_cast<uint64_t>(shape.back());
  if (inner % block != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("has rows of ", inner, " elements, its type needs a multiple of ", block));
  }
  const std::optional<uint64_t> bytes = CheckedMultiply(elements / block, block_bytes);
  if (!bytes.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("has a shape whose size overflows: [", absl::StrJoin(shape, ", "), "]"));
  }
  return *bytes;
}

absl::Status TensorTable::Add(Tensor tensor) {
  std::string name = tensor.name;
  std::string file = tensor.file;
  const auto [place, added] = tensors_.emplace(name, std::move(tensor));
  if (added) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      file, ": tensor \"", name, "\" is there twice (also in ", place->second.file, ")"));
}

const Tensor* TensorTable::Find(std::string_view name) const {
  const auto place = tensors_.find(name);
  return place == tensors_.end() ? nullptr : &place->second;
}

}  // namespace quire::load
