#include "kernels/cuda/ops/attention/attention_instances.h"
#include "kernels/cuda/ops/attention/attention_kernel.h"

namespace quire::kernels::cuda {

QUIRE_KERNEL(attention_prefill_fp8_64, AttentionParams, 128, 1) {
  Attention<64, 4, KvType::kFp8>(params);
}
QUIRE_KERNEL(attention_prefill_fp8_128, AttentionParams, 128, 1) {
  Attention<128, 4, KvType::kFp8>(params);
}
QUIRE_KERNEL(attention_prefill_fp8_256, AttentionParams, 128, 1) {
  Attention<256, 4, KvType::kFp8>(params);
}

AttentionInstance PrefillFp8(int head_dim) {
  if (head_dim == 64) {
    return InstanceOf<64, 4, KvType::kFp8>(QUIRE_KERNEL_OF(attention_prefill_fp8_64, 128));
  }
  if (head_dim == 128) {
    return InstanceOf<128, 4, KvType::kFp8>(QUIRE_KERNEL_OF(attention_prefill_fp8_128, 128));
  }
  return InstanceOf<256, 4, KvType::kFp8>(QUIRE_KERNEL_OF(attention_prefill_fp8_256, 128));
}

}  // namespace quire::kernels::cuda
