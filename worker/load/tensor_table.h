// The tensors of a model's files by name, whatever the file format: place, type and shape of each.
//
// Owned by ModelFiles; read-only once the files are open.
// 1. Every tensor's bytes are inside its mapped file, and are exactly what its type and shape need.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/tensor.h"

namespace quire::load {

// No served model has more; a row of 2^31 elements would overflow the kernels' index type.
inline constexpr int64_t kMaxTensorDimension = int64_t{1} << 31;
inline constexpr int kMaxTensorRank = 8;

struct Tensor {
  std::string name;
  std::string type_name;               // as the file spells it
  std::optional<kernels::DType> type;  // absent: a type that cannot be computed with
  std::vector<int64_t> shape;          // outermost first, elements row-major
  std::span<const std::byte> bytes;
  std::string file;  // path, for messages

  // "[32, 64]"
  std::string ShapeText() const;
};

// Bytes that a tensor of this shape needs when `block` elements of the innermost dimension share
// `block_bytes` bytes. INVALID_ARGUMENT (with the fault, without the tensor's name) when a
// dimension is out of range, the innermost one is not a multiple of the block, or the product
// overflows.
absl::StatusOr<uint64_t> TensorBytes(std::span<const int64_t> shape, uint64_t block,
                                     uint64_t block_bytes);

class TensorTable {
 public:
  // ALREADY_EXISTS when there is a tensor of that name.
  absl::Status Add(Tensor tensor);
  // Null when there is none.
  const Tensor* Find(std::string_view name) const;
  // In order of name.
  const std::map<std::string, Tensor, std::less<>>& all() const { return tensors_; }
  size_t size() const { return tensors_.size(); }

 private:
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace quire::load
