// Barriers, shuffles, votes, fences and atomics.
//
// Every barrier takes all threads (BlockBarrier) or all 32 lanes (the rest): there are no masks. A
// shuffle or a vote makes lanes meet but orders no memory; WarpBarrier does. A thread that ended
// its kernel early is a thread missing at the barrier.
#pragma once

#include "kernels/cuda/device/kernel.h"

namespace quire::kernels::cuda::device {

inline constexpr unsigned kAllLanes = 0xffffffffu;

#ifdef __CUDACC__
QUIRE_DEVICE void BlockBarrier() { __syncthreads(); }
QUIRE_DEVICE void WarpBarrier() { __syncwarp(kAllLanes); }
QUIRE_DEVICE void Fence() { __threadfence(); }
QUIRE_DEVICE float Shuffle(float x, int from) { return __shfl_sync(kAllLanes, x, from); }
QUIRE_DEVICE uint32_t Shuffle(uint32_t x, int from) { return __shfl_sync(kAllLanes, x, from); }
QUIRE_DEVICE uint64_t Shuffle(uint64_t x, int from) {
  return __shfl_sync(kAllLanes, static_cast<unsigned long long>(x), from);
}
QUIRE_DEVICE uint32_t Ballot(bool p) { return __ballot_sync(kAllLanes, p); }
QUIRE_DEVICE uint32_t CountBits(uint32_t x) { return static_cast<uint32_t>(__popc(x)); }
QUIRE_DEVICE uint32_t AtomicAdd(uint32_t* at, uint32_t x) { return atomicAdd(at, x); }
QUIRE_DEVICE uint64_t AtomicAdd(uint64_t* at, uint64_t x) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(x));
}
QUIRE_DEVICE uint32_t AtomicMax(uint32_t* at, uint32_t x) { return atomicMax(at, x); }
QUIRE_DEVICE uint64_t AtomicMax(uint64_t* at, uint64_t x) {
  return atomicMax(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(x));
}
QUIRE_DEVICE uint32_t AtomicExchange(uint32_t* at, uint32_t x) { return atomicExch(at, x); }
#else
QUIRE_DEVICE void BlockBarrier() { emulated::BlockBarrier(); }
QUIRE_DEVICE void WarpBarrier() { emulated::WarpBarrier(); }
QUIRE_DEVICE void Fence() { emulated::Fence(); }
QUIRE_DEVICE float Shuffle(float x, int from) {
  const uint64_t got = emulated::Shuffle(__builtin_bit_cast(uint32_t, x), from);
  return __builtin_bit_cast(float, static_cast<uint32_t>(got));
}
QUIRE_DEVICE uint32_t Shuffle(uint32_t x, int from) {
  return static_cast<uint32_t>(emulated::Shuffle(x, from));
}
QUIRE_DEVICE uint64_t Shuffle(uint64_t x, int from) { return emulated::Shuffle(x, from); }
QUIRE_DEVICE uint32_t Ballot(bool p) { return emulated::Ballot(p); }
QUIRE_DEVICE uint32_t CountBits(uint32_t x) { return static_cast<uint32_t>(__builtin_popcount(x)); }
QUIRE_DEVICE uint32_t AtomicAdd(uint32_t* at, uint32_t x) {
  return static_cast<uint32_t>(emulated::Atomic(emulated::AtomicOp::kAdd, at, 4, x));
}
QUIRE_DEVICE uint64_t AtomicAdd(uint64_t* at, uint64_t x) {
  return emulated::Atomic(emulated::AtomicOp::kAdd, at, 8, x);
}
QUIRE_DEVICE uint32_t AtomicMax(uint32_t* at, uint32_t x) {
  return static_cast<uint32_t>(emulated::Atomic(emulated::AtomicOp::kMax, at, 4, x));
}
QUIRE_DEVICE uint64_t AtomicMax(uint64_t* at, uint64_t x) {
  return emulated::Atomic(emulated::AtomicOp::kMax, at, 8, x);
}
QUIRE_DEVICE uint32_t AtomicExchange(uint32_t* at, uint32_t x) {
  return static_cast<uint32_t>(emulated::Atomic(emulated::AtomicOp::kExchange, at, 4, x));
}
#endif

template <class T>
QUIRE_DEVICE T ShuffleXor(T x, int mask) {
  return Shuffle(x, Lane() ^ mask);
}

// The sum over the lanes, the same bits in all of them: halves 16, 8, 4, 2, 1.
QUIRE_DEVICE float WarpSum(float x) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) x = x + ShuffleXor(x, mask);
  return x;
}
QUIRE_DEVICE float WarpMax(float x) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const float other = ShuffleXor(x, mask);
    x = other > x ? other : x;
  }
  return x;
}

// True in every thread of the block that arrives last of `count` at a counter that begins at zero;
// it finds what the other blocks wrote before they arrived, and the counter back at zero. `flag` is
// a word of shared memory.
QUIRE_DEVICE bool LastToArrive(uint32_t* counter, uint32_t count, uint32_t* flag) {
  BlockBarrier();
  if (ThreadIndex() == 0) {
    Fence();
    const uint32_t before = AtomicAdd(counter, 1u);
    Fence();
    if (before + 1 == count) AtomicExchange(counter, 0u);
    *flag = before + 1 == count ? 1u : 0u;
  }
  BlockBarrier();
  return *flag != 0;
}

}  // namespace quire::kernels::cuda::device
