#include "kernels/cuda/ops/latent/latent_kernel.h"

namespace quire::kernels::cuda {

QUIRE_KERNEL(latent_attention_narrow, LatentAttentionParams, 128, 2) {
  LatentAttention<NarrowLatents<KvType::kBF16>>(params);
}
QUIRE_KERNEL(latent_attention_16, LatentAttentionParams, 128, 2) {
  LatentAttention<WideLatents16<KvType::kBF16>>(params);
}
QUIRE_KERNEL(latent_attention_64, LatentAttentionParams, 256, 1) {
  LatentAttention<WideLatents64<KvType::kBF16>>(params);
}

LatentInstances LatentsBf16() {
  return {
      InstanceOfLatents<NarrowLatents<KvType::kBF16>>(
          QUIRE_KERNEL_OF(latent_attention_narrow, 128)),
      InstanceOfLatents<WideLatents16<KvType::kBF16>>(QUIRE_KERNEL_OF(latent_attention_16, 128)),
      InstanceOfLatents<WideLatents64<KvType::kBF16>>(QUIRE_KERNEL_OF(latent_attention_64, 256))};
}

}  // namespace quire::kernels::cuda
