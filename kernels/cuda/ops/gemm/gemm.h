// The product of activations and weights, both bfloat16 or both float16, for every number of rows,
// with the same bits at each.
//
// y[m, n] = (Σ_k x[m, k] · weight[n, k] + bias[n]) · scale, soft-capped, then through a ReLU or its
// square, where each is requested; out = y, or out += y. The weights are always the 16-row side of
// the tensor core's tile and the rows of x its 8 columns, so that one row of x wastes little and
// the arithmetic of an element never depends on how many rows there are.
//
// Quantised weights stay so in memory and become bfloat16, or float16 of at most ±65,504, in
// registers: the float32 that their format defines, rounded once. The result has the bits of a
// product with weights that were expanded so.
//
// Codes of activations meet codes of weights as they are: int8 sums S are exact over the whole of
// K, y = float(S) · (step of x · step of w). Of e4m3, 128 of K are one sum c on the tensor cores;
// where both steps hold for whole rows, y = (Σ c) · (step of x · step of w), else y = fma(c,
// step of x · step of w, y).
//
// The order of a sum follows from (N, K) alone: K is cut into GemmSplits(N, K) pieces of whole
// 64-deep tiles; each piece is summed from zero, 16 products at a time in the order of k; pieces
// are added in ascending order. Whether one block runs all pieces or each has a block of its own
// (and the last to arrive adds them) is decided by speed and changes no bit.
#pragma once

#include "kernels/cuda/ops/gemm/quantised.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// Those of an H100 or H200. Pieces are cut for this number on every device.
inline constexpr int kGemmMultiprocessors = 132;

struct GemmParams {
  const uint16_t* x = nullptr;       // [m, k]
  const uint16_t* weight = nullptr;  // [n, k], where `quantised` has no data
  QuantisedWeight quantised;         // [n, k]
  // In place of x, where quantised.form is one of codes by codes: [m, k], and [m, code_groups].
  const uint8_t* codes = nullptr;
  const float* code_scales = nullptr;
  int code_groups = 1;          // of K, each of 128, or 1
  const float* bias = nullptr;  // [n] or null
  void* out = nullptr;          // [m, n] bfloat16, or float32 with out_float32
  int m = 0;
  int n = 0;  // a multiple of 8
  // Rows of the whole matrix, where these are some of them: pieces of K follow from it. 0: n.
  int whole_n = 0;
  int k = 0;           // a multiple of 8
  int out_stride = 0;  // elements from row to row of out, a multiple of 8; 0: n
  bool out_float32 = false;
  bool accumulate = false;  // out += y; with out_float32 alone
  bool relu = false;
  bool relu_squared = false;  // with relu: its square
  bool half = false;  // x and the weights are float16
  float scale = 1.0f;
  float softcap = 0.0f;  // above 0: y = softcap · tanh(y / softcap)
  // Where pieces wait for each other: GemmWorkspaceBytes(m, n, k, whole_n) of memory, and
  // GemmCounters(m, n) words that are zero before the first launch and zero again after each.
  float* workspace = nullptr;
  uint32_t* counters = nullptr;
  // With fewer tiles than this, each piece gets its own block. At most kGemmMultiprocessors.
  int multiprocessors = kGemmMultiprocessors;
  // Filled in by LaunchGemm.
  int splits = 0;
  int tiles_per_split = 0;
};

// Pieces that K is cut into.
int GemmSplits(int n, int k);
// Of weights of any format.
size_t GemmWorkspaceBytes(int m, int n, int k, int whole_n = 0);
size_t GemmCounters(int m, int n);

runtime::Error LaunchGemm(runtime::Runtime& runtime, runtime::StreamId stream, GemmParams params);

}  // namespace quire::kernels::cuda
