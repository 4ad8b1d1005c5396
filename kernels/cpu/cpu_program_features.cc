// What one program shows and another reads: hidden states of a target, for draft heads.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_program.h"
#include "kernels/cpu/cpu_program_share.h"

namespace quire::kernels::cpu {
namespace {

constexpr int kLeastCopiedFloats = 16384;  // smaller jobs cost less than waking a thread

}  // namespace

FeatureRows CpuProgram::Features() const {
  return {buffer_data_[static_cast<size_t>(features_)],
          BufferStride(buffer_infos_[static_cast<size_t>(features_)].width)};
}

FeatureRows CpuProgram::Embed(std::span<const int32_t> tokens) {
  const auto found = std::find_if(ops_.begin(), ops_.end(),
                                  [](const Op& op) { return std::holds_alternative<EmbedOp>(op); });
  const auto& op = std::get<EmbedOp>(*found);
  StepBatch batch;
  batch.tokens = tokens;
  step_.batch = &batch;
  step_.tokens = static_cast<int>(tokens.size());
  RunOp(op);
  step_ = Step{};
  return {BufferData(op.out), Stride(op.out)};
}

void CpuProgram::RunOp(const CopyOp& op) {
  const int width = buffer_infos_[op.in].width;
  Share(RowCount(op.in), kLeastCopiedFloats / width + 1, [&](int begin, int end, int) {
    for (int row = begin; row < end; ++row) {
      const float* in = BufferData(op.in) + row * Stride(op.in);
      float* out = BufferData(op.out) + row * Stride(op.out) + op.column;
      if (op.accumulate) {
        for (int i = 0; i < width; ++i) out[i] += in[i];
      } else {
        std::memcpy(out, in, static_cast<size_t>(width) * sizeof(float));
      }
    }
  });
}

void CpuProgram::RunOp(const InputOp& op) {
  const size_t width = static_cast<size_t>(buffer_infos_[op.out].width);
  const std::span<const float> inputs = step_.batch->inputs;
  const size_t stride = step_.tokens == 0 ? 0 : inputs.size() / static_cast<size_t>(step_.tokens);
  for (int row = 0; row < step_.tokens; ++row) {
    std::memcpy(BufferData(op.out) + row * Stride(op.out),
                inputs.data() + static_cast<size_t>(row) * stride + op.column,
                width * sizeof(float));
  }
}

}  // namespace quire::kernels::cpu
