// Kernels that read word by word. The second does not wait for those in front of it.
#include "kernels/cuda/device/kernel.h"

namespace quire::kernels::cuda::test {

using namespace device;  // NOLINT: a kernel file's vocabulary

struct NarrowParams {
  const float* in;
  float* out;
};

QUIRE_KERNEL(gate_narrow, NarrowParams, 128, 1) {
  params.out[ThreadIndex()] = params.in[ThreadIndex()] * 2.0f;
}
QUIRE_KERNEL_AHEAD(gate_early, NarrowParams, 128, 1) {
  params.out[ThreadIndex()] = params.in[ThreadIndex()] * 2.0f;
}

}  // namespace quire::kernels::cuda::test
