// Matrices of NVFP4 in GGUF files that have one more scale, for the tensor or for each expert of
// it, in a tensor of its own: "blk.0.attn_q.scale" beside "blk.0.attn_q.weight".
//
// The product of both scales is rounded once, as that of checkpoints in safetensors is.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/tensor.h"
#include "worker/load/tensor_table.h"

namespace quire::model {

// The scale of a matrix; null where it has none, or is of another type.
const load::Tensor* OuterScaleOf(const load::TensorTable& tensors, const load::Tensor& matrix);

// The number of an expert, or of all where `expert` is negative. INVALID_ARGUMENT names a tensor
// that is no float32 for each matrix, and what is no finite number.
absl::StatusOr<float> ReadOuterScale(const load::Tensor& scale, const load::Tensor& matrix,
                                     int expert);

// Writes rows of NVFP4 as kF4_16, end to end.
void WriteScaledNvfp4Rows(const kernels::WeightSource& from, float scale, int64_t first,
                          int64_t count, std::byte* to);

}  // namespace quire::model
