#include "tests/kernels/cuda/timing/stamp.h"

#include "kernels/cuda/device/clock.h"

namespace quire::kernels::cuda::test {

constexpr int kStampThreads = 32;

QUIRE_KERNEL(test_stamp, StampParams, kStampThreads, 1) {
  if (device::ThreadIndex() != 0) return;
  const uint64_t nanos = device::Nanos();
  const uint64_t at = *params.count;
  *params.count = at + 1;
  if (at >= params.capacity) return;
  params.stamps[at].nanos = nanos;
  params.stamps[at].kind = params.kind;
}

runtime::Error LaunchStamp(runtime::Runtime& runtime, runtime::StreamId stream,
                           const StampParams& params) {
  return runtime.Launch(stream, QUIRE_KERNEL_OF(test_stamp, kStampThreads),
                        runtime::ShapeOf(1, 1, 0, params));
}

}  // namespace quire::kernels::cuda::test
