// Shared memory, 16-byte accesses, asynchronous copies and matrix loads.
//
// Shared memory is one buffer per block, of the size that the launch names; kernels cut it up
// themselves. Nothing may be read from it before it was written.
#pragma once

#include "kernels/cuda/device/kernel.h"

namespace quire::kernels::cuda::device {

// 16 bytes, moved by one instruction: their address is a multiple of 16.
struct alignas(16) Vector16 {
  uint32_t word[4];
};

#ifdef __CUDACC__
QUIRE_DEVICE unsigned char* SharedMemory() {
  extern __shared__ __align__(128) unsigned char quire_shared[];
  return quire_shared;
}
QUIRE_DEVICE uint32_t SharedAddress(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}
QUIRE_DEVICE Vector16 Load16(const void* from) {
  const uint4 v = *static_cast<const uint4*>(from);
  return Vector16{{v.x, v.y, v.z, v.w}};
}
QUIRE_DEVICE void Store16(void* to, Vector16 v) {
  *static_cast<uint4*>(to) = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
}
QUIRE_DEVICE void AsyncCopy16(void* to, const void* from, int valid = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(to)),
               "l"(from), "r"(valid)
               : "memory");
}
QUIRE_DEVICE void AsyncCommit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kNewest>
QUIRE_DEVICE void AsyncWait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kNewest) : "memory");
}
QUIRE_DEVICE void LoadMatrices4(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row))
               : "memory");
}
QUIRE_DEVICE void LoadMatrices4Transposed(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row))
               : "memory");
}
QUIRE_DEVICE void LoadMatrices2(uint32_t (&out)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n"
               : "=r"(out[0]), "=r"(out[1])
               : "r"(SharedAddress(row))
               : "memory");
}
#else
QUIRE_DEVICE unsigned char* SharedMemory() { return emulated::SharedBuffer(); }
QUIRE_DEVICE Vector16 Load16(const void* from) {
  Vector16 v;
  emulated::Read16(&v, from);
  return v;
}
QUIRE_DEVICE void Store16(void* to, Vector16 v) { emulated::Write16(to, &v); }
QUIRE_DEVICE void AsyncCopy16(void* to, const void* from, int valid = 16) {
  emulated::AsyncCopy16(to, from, static_cast<uint32_t>(valid));
}
QUIRE_DEVICE void AsyncCommit() { emulated::AsyncCommit(); }
template <int kNewest>
QUIRE_DEVICE void AsyncWait() {
  emulated::AsyncWait(kNewest);
}
QUIRE_DEVICE void LoadMatrices4(uint32_t (&out)[4], const void* row) {
  emulated::LoadMatrices(out, row, 4, false);
}
QUIRE_DEVICE void LoadMatrices4Transposed(uint32_t (&out)[4], const void* row) {
  emulated::LoadMatrices(out, row, 4, true);
}
QUIRE_DEVICE void LoadMatrices2(uint32_t (&out)[2], const void* row) {
  emulated::LoadMatrices(out, row, 2, false);
}
#endif

// Shared memory from a byte offset on, as an array of T.
template <class T>
QUIRE_DEVICE T* Shared(int offset_bytes = 0) {
  return reinterpret_cast<T*>(SharedMemory() + offset_bytes);
}

}  // namespace quire::kernels::cuda::device
