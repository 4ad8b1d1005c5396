#include "kernels/cuda/ops/attention/attention_instances.h"
#include "kernels/cuda/ops/attention/attention_kernel.h"
#include "kernels/cuda/ops/attention/attention_wide.h"

namespace quire::kernels::cuda {

QUIRE_KERNEL(attention_wide_16, AttentionParams, 128, 2) {
  RunAttention<WideBlock16<KvType::kBF16>>(params, params.apart);
}
QUIRE_KERNEL(attention_wide_64, AttentionParams, 256, 1) {
  RunAttention<WideBlock64<KvType::kBF16>>(params, /*apart=*/false);
}

WideInstances WideBf16() {
  return {{QUIRE_KERNEL_OF(attention_wide_16, 128), WideBlock16<KvType::kBF16>::kSharedBytes, 16},
          {QUIRE_KERNEL_OF(attention_wide_64, 256), WideBlock64<KvType::kBF16>::kSharedBytes, 64}};
}

}  // namespace quire::kernels::cuda
