// Which compiled kernel of attention serves a head dimension, and what it needs.
#pragma once

#include "kernels/cuda/ops/attention/attention_kernel.h"
#include "kernels/cuda/runtime/kernel_handle.h"

namespace quire::kernels::cuda {

struct AttentionInstance {
  runtime::KernelHandle kernel;
  uint32_t shared_bytes;
  int rows = 0;  // of a block, where several may share a tile
};

template <int kHeadDim, int kWarps, KvType kType>
AttentionInstance InstanceOf(runtime::KernelHandle kernel) {
  return {kernel, AttentionBlock<kHeadDim, kWarps, kType>::kSharedBytes};
}

// The two of wide heads: blocks of sixteen rows, and of 64.
struct WideInstances {
  AttentionInstance of16;
  AttentionInstance of64;
};
WideInstances WideBf16();
WideInstances WideF16();
WideInstances WideFp8();

// By what the pages hold. head_dim: 64, 128 or 256.
AttentionInstance DecodeBf16(int head_dim);
AttentionInstance DecodeF16(int head_dim);
AttentionInstance DecodeFp8(int head_dim);
AttentionInstance PrefillBf16(int head_dim);
AttentionInstance PrefillF16(int head_dim);
AttentionInstance PrefillFp8(int head_dim);

}  // namespace quire::kernels::cuda
