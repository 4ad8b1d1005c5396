#include "kernels/cuda/ops/attention/attention_instances.h"
#include "kernels/cuda/ops/attention/attention_kernel.h"
#include "kernels/cuda/ops/attention/attention_wide.h"

namespace quire::kernels::cuda {

QUIRE_KERNEL(attention_wide_fp8_16, AttentionParams, 128, 2) {
  RunAttention<WideBlock16<KvType::kFp8>>(params, params.apart);
}
QUIRE_KERNEL(attention_wide_fp8_64, AttentionParams, 256, 1) {
  RunAttention<WideBlock64<KvType::kFp8>>(params, /*apart=*/false);
}

WideInstances WideFp8() {
  return {
      {QUIRE_KERNEL_OF(attention_wide_fp8_16, 128), WideBlock16<KvType::kFp8>::kSharedBytes, 16},
      {QUIRE_KERNEL_OF(attention_wide_fp8_64, 256), WideBlock64<KvType::kFp8>::kSharedBytes, 64}};
}

}  // namespace quire::kernels::cuda
