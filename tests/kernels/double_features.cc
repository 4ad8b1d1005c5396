// The float64 meaning of the ops that pass rows between programs.
#include "tests/kernels/double_model.h"

namespace quire::kernels::test {

void DoubleModel::Apply(const CopyOp& op) {
  for (size_t t = 0; t < tokens_.size(); ++t) {
    buffers_[op.out][t].resize(static_cast<size_t>(program_.buffers[op.out].width));
    for (size_t i = 0; i < buffers_[op.in][t].size(); ++i) {
      double& out = buffers_[op.out][t][static_cast<size_t>(op.column) + i];
      out = buffers_[op.in][t][i] + (op.accumulate ? out : 0.0);
    }
  }
}

void DoubleModel::Apply(const InputOp& op) {
  const size_t width = static_cast<size_t>(program_.input_width);
  for (size_t t = 0; t < tokens_.size(); ++t) {
    buffers_[op.out][t].resize(static_cast<size_t>(program_.buffers[op.out].width));
    for (size_t i = 0; i < buffers_[op.out][t].size(); ++i) {
      buffers_[op.out][t][i] = inputs_[t * width + static_cast<size_t>(op.column) + i];
    }
  }
}

}  // namespace quire::kernels::test
