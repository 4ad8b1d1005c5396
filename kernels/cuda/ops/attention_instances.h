// Which compiled kernel of attention serves a head dimension, and what it needs.
#pragma once

#include "kernels/cuda/ops/attention_kernel.h"
#include "kernels/cuda/runtime/kernel_handle.h"

namespace quire::kernels::cuda {

struct AttentionInstance {
  runtime::KernelHandle kernel;
  uint32_t shared_bytes;
};

template <int kHeadDim, int kWarps>
AttentionInstance InstanceOf(runtime::KernelHandle kernel) {
  return {kernel, AttentionBlock<kHeadDim, kWarps>::kSharedBytes};
}

// head_dim: 64, 128 or 256.
AttentionInstance DecodeAttention(int head_dim);
AttentionInstance PrefillAttention(int head_dim);

}  // namespace quire::kernels::cuda
