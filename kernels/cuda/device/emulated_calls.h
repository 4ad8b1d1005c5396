// The calls of device code into the emulated grid: the host bodies of everything in this folder.
//
// Declared here, defined in kernels/cuda/emulate. Called only from code that runs on an emulated
// thread; each call finds that thread by itself. A call that meets an error (a race, a barrier that
// not all threads reach) records it and continues: RunGrid returns the list.
#pragma once

#include <cstdint>

namespace quire::kernels::cuda::emulated {

struct Index {
  uint32_t x = 0, y = 0, z = 0;
};

// The position of the running thread.
struct Place {
  Index block;
  Index grid;            // blocks
  uint32_t thread = 0;   // in the block
  uint32_t threads = 0;  // of the block
};
const Place& Here();

// The block's shared memory: full of 0xff bytes (NaN in every float format) when it begins.
unsigned char* SharedBuffer();
uint32_t SharedBytes();

// From here on the writes of kernels that were launched before are ordered before this thread.
void WaitForEarlierKernels();

void BlockBarrier();
void WarpBarrier();
// Orders the calling thread's accesses, and those that it has synchronised with, before its later
// atomics; and what other threads released through an atomic before its later accesses.
void Fence();

// The value that lane `from` passed. Every lane of the warp calls it; it orders no memory.
uint64_t Shuffle(uint64_t value, uint32_t from);
uint32_t Ballot(bool predicate);

enum class AtomicOp : uint8_t { kAdd, kMax, kMin, kExchange, kOr, kLoad };
// Applies op to *at (4 or 8 bytes, unsigned) and returns the previous value.
uint64_t Atomic(AtomicOp op, void* at, uint32_t bytes, uint64_t operand);

// 16 bytes from global to shared memory; those from `valid` on become zero. Done at a moment
// between this call and the wait.
void AsyncCopy16(void* to, const void* from, uint32_t valid);
void AsyncCommit();
// Returns when at most `newest` of this thread's committed groups are still under way.
void AsyncWait(uint32_t newest);

void Read16(void* out, const void* from);
void Write16(void* to, const void* value);

// `count` (1, 2, 4) matrices of 8 × 8 elements of 16 bits. Lanes 8i … 8i + 7 give the rows of
// matrix i.
void LoadMatrices(uint32_t* out, const void* row, uint32_t count, bool transposed);

enum class Element : uint8_t { kBf16, kF16, kInt8, kE4m3 };
// d[16 × 8] += a[16 × 16] · b[16 × 8], fragments as mma.sync.m16n8k16 lays them out; of eight-bit
// numbers 32 of K, as mma.sync.m16n8k32 does. d of kInt8 is the bits of int32.
void Multiply(float* d, const uint32_t* a, const uint32_t* b, Element element);

}  // namespace quire::kernels::cuda::emulated
