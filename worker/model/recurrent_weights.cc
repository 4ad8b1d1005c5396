// Weights of recurrent layers and of gated attention, and experts that are one tensor.
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/model/program_builder.h"

namespace quire::model {

using kernels::WeightId;
using kernels::WeightSource;

WeightId ProgramBuilder::Runs(const std::vector<Stack>& runs, int64_t cols, const Place& place) {
  kernels::Weight weight;
  weight.cols = cols;
  for (const Stack& run : runs) {
    if (!status_.ok()) return kernels::kNoId;
    if (AddQuantised(run, cols, place, {}, weight)) continue;
    AddRows(run, cols, place, {}, weight);
  }
  if (!status_.ok()) return kernels::kNoId;
  program_.weights.push_back(std::move(weight));
  const auto id = static_cast<WeightId>(program_.weights.size()) - 1;
  Remember(id, {runs, place, cols, {}});
  return id;
}

WeightId ProgramBuilder::FloatVector(std::string_view name, const std::vector<float>& values) {
  const auto size = static_cast<int64_t>(values.size());
  std::byte* const data = memory_.Allocate(4 * size);
  std::memcpy(data, values.data(), 4 * values.size());
  program_.weights.push_back({std::string(name), {{kernels::DType::kF32, 1, size, data}}, 1, size});
  return static_cast<WeightId>(program_.weights.size()) - 1;
}

WeightId ProgramBuilder::Convolution(const std::vector<Range>& kept, int64_t channels, int layer) {
  if (!status_.ok()) return kernels::kNoId;
  const int64_t taps = config_.recurrent.taps;
  std::vector<int64_t> shape = {channels, taps};
  if (!files_.is_gguf()) shape.insert(shape.begin() + 1, 1);
  const load::Tensor* tensor = Find(Part::kConvolution, "weight", layer, shape);
  if (tensor == nullptr) return kernels::kNoId;
  if (!IsFloat(*tensor->type)) {
    Fail(absl::InvalidArgumentError(absl::StrCat(tensor->file, ": tensor \"", tensor->name,
                                                 "\" has type ", tensor->type_name,
                                                 ", convolutions may be F32, F16 or BF16")));
    return kernels::kNoId;
  }
  const WeightSource source{*tensor->type, 1, channels * taps, tensor->bytes.data()};
  std::vector<float> values;
  for (int64_t tap = 0; tap < taps; ++tap) {
    for (const Range& range : kept) {
      for (int64_t i = range.begin; i < range.begin + range.count; ++i) {
        values.push_back(FloatAt(source, i * taps + tap));
      }
    }
  }
  return FloatVector(tensor->name, values);
}

WeightId ProgramBuilder::Decay(int64_t heads, const Range& kept, int layer) {
  if (!status_.ok()) return kernels::kNoId;
  const load::Tensor* tensor = Find(Part::kDecay, "weight", layer, {heads});
  if (tensor == nullptr) return kernels::kNoId;
  const WeightSource source{*tensor->type, 1, heads, tensor->bytes.data()};
  std::vector<float> values;
  for (int64_t i = kept.begin; i < kept.begin + kept.count; ++i) {
    const float stored = FloatAt(source, i);
    values.push_back(files_.is_gguf() ? stored : -std::exp(stored));
    if (values.back() <= 0.0f && std::isfinite(values.back())) continue;
    Fail(absl::InvalidArgumentError(
        absl::StrCat(tensor->file, ": tensor \"", tensor->name, "\" holds ", stored,
                     files_.is_gguf() ? ", it must be at most 0" : ", its power is no number")));
    return kernels::kNoId;
  }
  return FloatVector(tensor->name, values);
}

bool ProgramBuilder::AddFused(const Stack& stack, int64_t cols, const Place& place, Range kept,
                              kernels::Weight& weight) {
  if (place.expert == kNoExpert || files_.is_gguf()) return false;
  const bool down = stack.part == Part::kExpertDown;
  const Part fused = down ? Part::kFusedDown : Part::kFusedGateUp;
  bool there = false;
  for (const std::string& name : TensorNames(naming_, false, fused, place.layer, "weight")) {
    there = there || files_.tensors().Find(name) != nullptr;
  }
  if (!there) return false;
  const int64_t rows = down ? stack.rows : 2 * stack.rows;
  const int64_t experts = config_.experts.count;
  const load::Tensor* tensor = Find(fused, "weight", place.layer, {experts, rows, cols});
  if (tensor == nullptr) return true;
  if (!IsFloat(*tensor->type)) {
    Fail(absl::InvalidArgumentError(absl::StrCat(tensor->file, ": tensor \"", tensor->name,
                                                 "\" has type ", tensor->type_name,
                                                 ", served are F32, F16 or BF16")));
    return true;
  }
  Range own = stack.kept;
  if (own.count < 0) own.count = stack.rows;
  own.begin += place.expert * rows + (stack.part == Part::kExpertUp ? stack.rows : 0);
  const WeightSource source = Source(*tensor, experts * rows, cols, {own, kept});
  if (weight.name.empty()) weight.name = tensor->name;
  weight.parts.push_back(memory_.Convert(source, tensor->name));
  weight.rows += source.rows;
  return true;
}

}  // namespace quire::model
