#include "kernels/cuda/ops/latent/latent_kernel.h"

namespace quire::kernels::cuda {

QUIRE_KERNEL(latent_attention_fp8_narrow, LatentAttentionParams, 128, 2) {
  LatentAttention<NarrowLatents<KvType::kFp8>>(params);
}
QUIRE_KERNEL(latent_attention_fp8_16, LatentAttentionParams, 128, 2) {
  LatentAttention<WideLatents16<KvType::kFp8>>(params);
}
QUIRE_KERNEL(latent_attention_fp8_64, LatentAttentionParams, 256, 1) {
  LatentAttention<WideLatents64<KvType::kFp8>>(params);
}

LatentInstances LatentsFp8() {
  return {
      InstanceOfLatents<NarrowLatents<KvType::kFp8>>(
          QUIRE_KERNEL_OF(latent_attention_fp8_narrow, 128)),
      InstanceOfLatents<WideLatents16<KvType::kFp8>>(QUIRE_KERNEL_OF(latent_attention_fp8_16, 128)),
      InstanceOfLatents<WideLatents64<KvType::kFp8>>(
          QUIRE_KERNEL_OF(latent_attention_fp8_64, 256))};
}

}  // namespace quire::kernels::cuda
