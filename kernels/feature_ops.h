// Ops that pass rows of floats from one program to another: a draft head reads the hidden states
// that its target computes (Medusa, arXiv 2401.10774; EAGLE-3, 2503.01840; DeepSeek-V3,
// 2412.19437).
//
// Values. StepProgram::features names the buffer that a program shows; StepBatch::inputs holds what
// a program reads. A program with neither computes as if they did not exist.
#pragma once

#include <cstdint>

#include "kernels/program_ids.h"

namespace quire::kernels {

// out[t][column …] = in[t], or += in[t].
struct CopyOp {
  BufferId in = kNoId;
  BufferId out = kNoId;
  int column = 0;
  bool accumulate = false;
};

// out[t] = StepBatch::inputs[t][column …], as wide as `out`.
struct InputOp {
  BufferId out = kNoId;
  int column = 0;
};

// Rows of floats, `stride` apart; valid until the program's next step.
struct FeatureRows {
  const float* data = nullptr;
  int64_t stride = 0;
  const float* Row(int64_t row) const { return data + row * stride; }
};

}  // namespace quire::kernels
