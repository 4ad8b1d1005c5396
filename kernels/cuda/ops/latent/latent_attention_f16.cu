#include "kernels/cuda/ops/latent/latent_kernel.h"

namespace quire::kernels::cuda {

QUIRE_KERNEL(latent_attention_f16_narrow, LatentAttentionParams, 128, 2) {
  LatentAttention<NarrowLatents<KvType::kF16>>(params);
}
QUIRE_KERNEL(latent_attention_f16_16, LatentAttentionParams, 128, 2) {
  LatentAttention<WideLatents16<KvType::kF16>>(params);
}
QUIRE_KERNEL(latent_attention_f16_64, LatentAttentionParams, 256, 1) {
  LatentAttention<WideLatents64<KvType::kF16>>(params);
}

LatentInstances LatentsF16() {
  return {
      InstanceOfLatents<NarrowLatents<KvType::kF16>>(
          QUIRE_KERNEL_OF(latent_attention_f16_narrow, 128)),
      InstanceOfLatents<WideLatents16<KvType::kF16>>(QUIRE_KERNEL_OF(latent_attention_f16_16, 128)),
      InstanceOfLatents<WideLatents64<KvType::kF16>>(
          QUIRE_KERNEL_OF(latent_attention_f16_64, 256))};
}

}  // namespace quire::kernels::cuda
