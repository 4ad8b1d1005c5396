// The part of cuBLASLt's interface that is used, in the version of the header that
// tests/kernels/cuda/gate/cublaslt_abi.cu compares it with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::kernels::cuda::cublaslt {

inline constexpr size_t kHeaderVersion = 130100;  // 13.1.0

using Code = int;
using DataType = int;
using Handle = void*;
using MatmulDesc = void*;
using MatrixLayout = void*;
using Preference = void*;
using NativeStream = void*;  // a cudaStream_t

struct Algo {
  uint64_t data[8];
};
struct Heuristic {
  Algo algo;
  size_t workspace_bytes;
  Code state;
  float waves;
  int reserved[4];
};

inline constexpr Code kSuccess = 0;
inline constexpr Code kNotSupported = 15;
inline constexpr DataType kFloat32 = 0;
inline constexpr DataType kBFloat16 = 14;
inline constexpr DataType kFloat8 = 28;  // e4m3
inline constexpr int kComputeFloat32 = 68;
inline constexpr int kDescTransposeA = 3;
inline constexpr int kDescEpilogue = 7;
inline constexpr int kDescBias = 8;
inline constexpr int kPreferenceWorkspace = 1;
inline constexpr int kPreferenceAlignmentA = 5;  // in bytes; unset: 256
inline constexpr int kPreferenceAlignmentB = 6;
inline constexpr int kPreferenceAlignmentC = 7;
inline constexpr int kPreferenceAlignmentD = 8;
inline constexpr int32_t kTranspose = 1;
inline constexpr uint32_t kEpilogueNone = 1;
inline constexpr uint32_t kEpilogueRelu = 2;
inline constexpr uint32_t kEpilogueBias = 4;

// Matrices are in the order of columns.
struct Functions {
  size_t (*version)() = nullptr;
  const char* (*status_string)(Code code) = nullptr;
  Code (*create)(Handle* handle) = nullptr;
  Code (*destroy)(Handle handle) = nullptr;
  Code (*desc_create)(MatmulDesc* desc, int compute, DataType scale) = nullptr;
  Code (*desc_destroy)(MatmulDesc desc) = nullptr;
  Code (*desc_set)(MatmulDesc desc, int attribute, const void* value, size_t bytes) = nullptr;
  Code (*layout_create)(MatrixLayout* layout, DataType type, uint64_t rows, uint64_t columns,
                        int64_t stride) = nullptr;
  Code (*layout_destroy)(MatrixLayout layout) = nullptr;
  Code (*preference_create)(Preference* preference) = nullptr;
  Code (*preference_destroy)(Preference preference) = nullptr;
  Code (*preference_set)(Preference preference, int attribute, const void* value,
                         size_t bytes) = nullptr;
  Code (*heuristic)(Handle handle, MatmulDesc desc, MatrixLayout a, MatrixLayout b, MatrixLayout c,
                    MatrixLayout d, Preference preference, int most, Heuristic* found,
                    int* count) = nullptr;
  // d = alpha · op(a) · b + beta · c, and what the epilogue adds.
  Code (*matmul)(Handle handle, MatmulDesc desc, const void* alpha, const void* a,
                 MatrixLayout a_layout, const void* b, MatrixLayout b_layout, const void* beta,
                 const void* c, MatrixLayout c_layout, void* d, MatrixLayout d_layout,
                 const Algo* algo, void* workspace, size_t workspace_bytes,
                 NativeStream stream) = nullptr;
};

}  // namespace quire::kernels::cuda::cublaslt
