// The scales of a quantised weight as checkpoints store them: floats, numbers of e4m3 under one
// factor of the tensor (NVFP4), exponents (MXFP4), or places in a codebook (bitsandbytes).
//
// A value that points into the mapped tensors of a TensorTable; format readers make it once shapes
// and types are checked. Pure.
#pragma once

#include <cstdint>

#include "worker/load/tensor_table.h"

namespace quire::load {

struct GroupScales {
  enum class Kind : uint8_t { kFloat, kE4m3, kExponent, kNested };

  const Tensor* tensor = nullptr;
  Kind kind = Kind::kFloat;
  // Of kFloat and kE4m3: what is stored times `factor`, over `divisor`. One of them is 1, so that
  // the scale is rounded once.
  float factor = 1.0f;
  float divisor = 1.0f;
  // Of kNested: codebook[byte] · outer[place / outer_group], rounded, plus the offset, rounded.
  const Tensor* codebook = nullptr;  // 256 floats
  const Tensor* outer = nullptr;
  int64_t outer_group = 1;
  float offset = 0.0f;

  // The scale at a place of `tensor`; no finite number where the checkpoint stores none.
  float At(int64_t place) const;
};

// Element i of a tensor of floats.
float FloatElement(const Tensor& tensor, int64_t i);

}  // namespace quire::load
