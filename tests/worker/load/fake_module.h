// A checkpoint of one module in memory, and what a quantisation says of it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "common/status.h"
#include "worker/load/quantisation.h"

namespace quire::load {

// A checkpoint of one module "m" in memory.
class FakeModule {
 public:
  template <typename T>
  FakeModule& Add(const std::string& name, const std::string& type, std::vector<int64_t> shape,
                  const std::vector<T>& values) {
    // Copies of a module share what their tensors point into.
    data_.push_back(std::make_shared<std::vector<std::byte>>(values.size() * sizeof(T)));
    std::vector<std::byte>& bytes = *data_.back();
    std::memcpy(bytes.data(), values.data(), bytes.size());
    Tensor tensor;
    tensor.name = "m." + name;
    tensor.type_name = type;
    if (type == "F32") tensor.type = kernels::DType::kF32;
    if (type == "F16") tensor.type = kernels::DType::kF16;
    if (type == "BF16") tensor.type = kernels::DType::kBF16;
    tensor.shape = std::move(shape);
    tensor.bytes = bytes;
    tensor.file = "w";
    EXPECT_TRUE(table_.Add(std::move(tensor)).ok());
    return *this;
  }
  const TensorTable& table() const { return table_; }

 private:
  std::vector<std::shared_ptr<std::vector<std::byte>>> data_;
  TensorTable table_;
};

inline absl::StatusOr<Quantisation> ReadConfig(const std::string& text) {
  const json::Value value = *json::Parse(text);
  return Quantisation::Read(value.as_object(), "config.json");
}

// The message with which [rows, cols] of the module is refused, when it is found or when it is
// checked.
inline std::string RefusalOf(const std::string& config, const FakeModule& module, int64_t rows,
                             int64_t cols) {
  const absl::StatusOr<Quantisation> read = ReadConfig(config);
  if (!read.ok()) return "the configuration: " + StatusMessage(read.status());
  const auto found = read->Find(module.table(), "m", rows, cols);
  if (!found.ok()) return StatusMessage(found.status());
  if (!found->has_value()) return "plain";
  return StatusMessage((*found)->Check({0, rows, 0, cols}));
}

}  // namespace quire::load
