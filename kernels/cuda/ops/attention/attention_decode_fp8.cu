#include "kernels/cuda/ops/attention/attention_instances.h"
#include "kernels/cuda/ops/attention/attention_kernel.h"

namespace quire::kernels::cuda {

QUIRE_KERNEL(attention_decode_fp8_64, AttentionParams, 32, 1) {
  Attention<64, 1, KvType::kFp8>(params);
}
QUIRE_KERNEL(attention_decode_fp8_128, AttentionParams, 32, 1) {
  Attention<128, 1, KvType::kFp8>(params);
}
QUIRE_KERNEL(attention_decode_fp8_256, AttentionParams, 32, 1) {
  Attention<256, 1, KvType::kFp8>(params);
}

AttentionInstance DecodeFp8(int head_dim) {
  if (head_dim == 64) {
    return InstanceOf<64, 1, KvType::kFp8>(QUIRE_KERNEL_OF(attention_decode_fp8_64, 32));
  }
  if (head_dim == 128) {
    return InstanceOf<128, 1, KvType::kFp8>(QUIRE_KERNEL_OF(attention_decode_fp8_128, 32));
  }
  return InstanceOf<256, 1, KvType::kFp8>(QUIRE_KERNEL_OF(attention_decode_fp8_256, 32));
}

}  // namespace quire::kernels::cuda
