#include "kernels/cuda/ops/rows/step_state.h"

#include <algorithm>

#include "kernels/cuda/device/memory.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kStepBeginThreads = 128;
constexpr int kStepEndThreads = 128;
constexpr int kOutputWords = sizeof(SampleOutput) / 4;
static_assert(sizeof(SampleOutput) % 4 == 0 && alignof(SampleOutput) == 4);

QUIRE_KERNEL(step_begin, StepBeginParams, kStepBeginThreads, 1) {
  const int i = BlockX() * kStepBeginThreads + ThreadIndex();
  const int changes = *params.change_count;
  if (i < changes && i < params.most_changes) {
    params.tables[params.changes[i]] = params.pages[i];
  }
  if (i >= params.token_count) return;
  const int32_t token = params.tokens[i];
  if (token < 0) params.tokens[i] = params.last[-1 - token];
}

// A word of the outputs for each thread, and a sample for each of the first.
QUIRE_KERNEL(step_end, StepEndParams, kStepEndThreads, 1) {
  const int i = BlockX() * kStepEndThreads + ThreadIndex();
  if (i >= params.count * kOutputWords) return;
  reinterpret_cast<uint32_t*>(params.host)[i] =
      reinterpret_cast<const uint32_t*>(params.outputs)[i];
  if (i >= params.count) return;
  const int32_t slot = params.slots[i];
  const int32_t token = params.outputs[i].token;
  if (slot >= 0) params.last[slot] = token >= 0 ? token : 0;
}

runtime::Error LaunchStepBegin(runtime::Runtime& runtime, runtime::StreamId stream,
                               const StepBeginParams& params) {
  const int most = std::max(params.token_count, params.most_changes);
  if (most <= 0) return {};
  const auto blocks = static_cast<uint32_t>((most + kStepBeginThreads - 1) / kStepBeginThreads);
  return runtime.Launch(stream, QUIRE_KERNEL_OF(step_begin, kStepBeginThreads),
                        runtime::ShapeOf(blocks, 1, 0, params));
}

runtime::Error LaunchStepEnd(runtime::Runtime& runtime, runtime::StreamId stream,
                             const StepEndParams& params) {
  if (params.count <= 0) return {};
  const auto blocks =
      static_cast<uint32_t>((params.count * kOutputWords + kStepEndThreads - 1) / kStepEndThreads);
  return runtime.Launch(stream, QUIRE_KERNEL_OF(step_end, kStepEndThreads),
                        runtime::ShapeOf(blocks, 1, 0, params));
}

}  // namespace quire::kernels::cuda
