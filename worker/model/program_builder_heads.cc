// The matrices of one head each that latent attention multiplies.
#include "absl/strings/str_cat.h"
#include "worker/model/program_builder.h"

namespace quire::model {

using kernels::WeightId;
using kernels::WeightSource;

WeightId ProgramBuilder::HeadKeys(const Place& head) {
  const load::LatentConfig& latent = config_.latent;
  const int64_t still = config_.head_dim - latent.rope_dim;
  if (files_.is_gguf()) return Matrix({{Part::kHeadKeys, latent.rank}}, still, head);
  const int64_t rows = still + latent.value_dim;
  return Transposed({Part::kLatentUp, config_.heads * rows, {head.expert * rows, still}},
                    latent.rank, head.layer);
}

WeightId ProgramBuilder::HeadValues(const Place& head) {
  const load::LatentConfig& latent = config_.latent;
  if (files_.is_gguf()) return Matrix({{Part::kHeadValues, latent.value_dim}}, latent.rank, head);
  const int64_t still = config_.head_dim - latent.rope_dim;
  const int64_t rows = still + latent.value_dim;
  const Range kept = {head.expert * rows + still, latent.value_dim};
  return Matrix({{Part::kLatentUp, config_.heads * rows, kept}}, latent.rank, head.layer);
}

WeightId ProgramBuilder::Transposed(const Stack& stack, int64_t cols, int layer) {
  if (!status_.ok()) return kernels::kNoId;
  kernels::Weight weight;
  weight.rows = cols;
  weight.cols = stack.kept.count;
  std::optional<load::QuantisedMatrix> quantised =
      FindQuantised(stack.part, layer, stack.rows, cols);
  if (!status_.ok()) return kernels::kNoId;
  if (quantised.has_value()) {
    weight.name = quantised->module + ".weight";
    weight.parts.push_back(memory_.MakeTransposed(*std::move(quantised),
                                                  {stack.kept.begin, stack.kept.count, 0, cols}));
  } else {
    const load::Tensor* tensor = Find(stack.part, "weight", layer, {stack.rows, cols});
    if (tensor == nullptr) return kernels::kNoId;
    if (!IsFloat(*tensor->type)) {
      Fail(absl::InvalidArgumentError(absl::StrCat(tensor->file, ": tensor \"", tensor->name,
                                                   "\" has type ", tensor->type_name,
                                                   ", served are F32, F16 or BF16")));
      return kernels::kNoId;
    }
    const int64_t bytes = kernels::BlockBytes(*tensor->type);
    WeightSource column{*tensor->type, cols, stack.kept.count,
                        tensor->bytes.data() + stack.kept.begin * cols * bytes};
    column.row_stride = bytes;
    weight.name = tensor->name;
    weight.parts.push_back(memory_.Gather(column, cols, tensor->name));
  }
  program_.weights.push_back(std::move(weight));
  return static_cast<WeightId>(program_.weights.size()) - 1;
}

}  // namespace quire::model
