#include "tests/kernels/cuda/planted/planted.h"

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"
#include "kernels/cuda/device/tensor_core.h"

namespace quire::kernels::cuda::test {

using namespace device;  // NOLINT: a kernel file's vocabulary

// out[t] = in[n − 1 − t] through shared memory.
template <bool kWrong>
QUIRE_DEVICE void Reverse(const PlantedParams& params) {
  float* shared = Shared<float>();
  const int t = ThreadIndex();
  shared[t] = params.in[t];
  if (!kWrong) BlockBarrier();
  params.out[t] = shared[kPlantedThreads - 1 - t];
}

// The same by asynchronous copies of four floats.
template <bool kWrong>
QUIRE_DEVICE void ReverseCopied(const PlantedParams& params) {
  float* shared = Shared<float>();
  const int t = ThreadIndex();
  if (t < kPlantedThreads / 4) AsyncCopy16(shared + 4 * t, params.in + 4 * t);
  AsyncCommit();
  if (!kWrong) AsyncWait<0>();
  BlockBarrier();
  params.out[t] = shared[kPlantedThreads - 1 - t];
  if (kWrong) AsyncWait<0>();
}

// A ring of two stages whose stage is filled again while others still read it.
template <bool kWrong>
QUIRE_DEVICE void Ring(const PlantedParams& params) {
  float* shared = Shared<float>();
  const int t = ThreadIndex();
  float sum = 0.0f;
  if (t < kPlantedThreads / 4) AsyncCopy16(shared + 4 * t, params.in + 4 * t);
  AsyncCommit();
  for (int step = 0; step < 4; ++step) {
    AsyncWait<0>();
    BlockBarrier();
    const int next = kWrong ? step % 2 : (step + 1) % 2;
    if (step < 3 && t < kPlantedThreads / 4) {
      AsyncCopy16(shared + next * kPlantedThreads + 4 * t,
                  params.in + (step + 1) * kPlantedThreads + 4 * t);
    }
    AsyncCommit();
    sum = sum + shared[step % 2 * kPlantedThreads + kPlantedThreads - 1 - t];
  }
  AsyncWait<0>();
  params.out[t] = sum;
}

// Lanes swap through shared memory. A shuffle makes them meet, but orders no memory.
template <bool kWrong>
QUIRE_DEVICE void SwapInWarp(const PlantedParams& params) {
  float* shared = Shared<float>();
  const int t = ThreadIndex();
  shared[t] = params.in[t];
  float same = Shuffle(params.in[t], Lane());
  if (!kWrong) WarpBarrier();
  params.out[t] = shared[t ^ 1] + same - params.in[t];
}

// out[8 × column + row …]: the 16 × 16 matrix times eight columns of `in`, by the tensor cores.
template <bool kWrong>
QUIRE_DEVICE void Product(const PlantedParams& params) {
  uint16_t* shared = Shared<uint16_t>();
  const int t = ThreadIndex();
  const int kRow = 24;  // elements from row to row: 48 bytes spread eight rows over the banks
  for (int i = t; i < 256; i += kPlantedThreads) {
    shared[i / 16 * kRow + i % 16] = params.matrix[i];
  }
  BlockBarrier();
  if (WarpIndex() != 0) return;
  const int lane = Lane();
  const int row = kWrong ? (lane / 16 * 8 + lane % 8) : lane % 16;
  const int column = kWrong ? (lane / 8 % 2 * 8) : lane / 16 * 8;
  uint32_t a[4];
  // The four 8 × 8 matrices: rows 0–7 and 8–15 of the left half, then of the right half. The wrong
  // form swaps the off-diagonal ones.
  LoadMatrices4(a, shared + row * kRow + column);
  float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  const int n = lane / 4;
  const int k = lane % 4 * 2;
  const uint32_t b0 = PackBf16(params.in[k * 8 + n], params.in[(k + 1) * 8 + n]);
  const uint32_t b1 = PackBf16(params.in[(k + 8) * 8 + n], params.in[(k + 9) * 8 + n]);
  MultiplyBf16(d, a, b0, b1);
  for (int i = 0; i < 4; ++i) {
    params.out[(n + i / 2 * 8) * 8 + k + i % 2] = d[i];
  }
}

// Blocks write partial sums; the last to arrive adds them in order.
template <bool kWrong>
QUIRE_DEVICE void Merge(const PlantedParams& params) {
  uint32_t* flag = Shared<uint32_t>();
  const int t = ThreadIndex();
  params.partial[BlockX() * kPlantedThreads + t] = params.in[BlockX() * kPlantedThreads + t] * 2.0f;
  if (kWrong) {
    BlockBarrier();
    if (t == 0) *flag = AtomicAdd(params.counter, 1u) + 1 == uint32_t{kPlantedBlocks} ? 1u : 0u;
    BlockBarrier();
    if (*flag == 0) return;
    if (t == 0) AtomicExchange(params.counter, 0u);
  } else if (!LastToArrive(params.counter, kPlantedBlocks, flag)) {
    return;
  }
  float sum = 0.0f;
  for (int b = 0; b < kPlantedBlocks; ++b) sum = sum + params.partial[b * kPlantedThreads + t];
  params.out[t] = sum;
}

// The same merge, by a block that arrived last but takes no fence before it reads what others
// wrote.
template <bool kWrong>
QUIRE_DEVICE void MergeUnfenced(const PlantedParams& params) {
  uint32_t* flag = Shared<uint32_t>();
  const int t = ThreadIndex();
  params.partial[BlockX() * kPlantedThreads + t] = params.in[BlockX() * kPlantedThreads + t] * 2.0f;
  BlockBarrier();
  if (t == 0) {
    Fence();
    *flag = AtomicAdd(params.counter, 1u) + 1 == uint32_t{kPlantedBlocks} ? 1u : 0u;
    if (!kWrong) Fence();
  }
  BlockBarrier();
  if (*flag == 0) return;
  float sum = 0.0f;
  for (int b = 0; b < kPlantedBlocks; ++b) sum = sum + params.partial[b * kPlantedThreads + t];
  params.out[t] = sum;
}

// Two reversals through one buffer: the second may not be written while the first is read.
template <bool kWrong>
QUIRE_DEVICE void ReverseTwice(const PlantedParams& params) {
  float* shared = Shared<float>();
  const int t = ThreadIndex();
  shared[t] = params.in[t];
  BlockBarrier();
  const float turned = shared[kPlantedThreads - 1 - t];
  if (!kWrong) BlockBarrier();
  shared[t] = turned;
  BlockBarrier();
  params.out[t] = shared[kPlantedThreads - 1 - t];
}

// out[t] = slot t of a sequence that lies in pages; `in` is the pool.
template <bool kWrong>
QUIRE_DEVICE void Paged(const PlantedParams& params) {
  const int t = ThreadIndex();
  if (t >= params.length) return;
  const int block = t / kPlantedPage;
  const int page = kWrong && block == 2 ? block : params.pages[block];
  params.out[t] = params.in[page * kPlantedPage + t % kPlantedPage];
}

// out[0] = the sum of a sequence's slots; the last page is only partly written.
template <bool kWrong>
QUIRE_DEVICE void SumOfPages(const PlantedParams& params) {
  if (WarpIndex() != 0) return;
  float sum = 0.0f;
  for (int first = 0; first < params.length; first += kWarpSize) {
    const int t = first + Lane();
    const int blocks = (params.length + kPlantedPage - 1) / kPlantedPage;
    const bool inside = kWrong ? t < blocks * kPlantedPage : t < params.length;
    if (inside) {
      sum = sum + params.in[params.pages[t / kPlantedPage] * kPlantedPage + t % kPlantedPage];
    }
  }
  sum = WarpSum(sum);
  if (Lane() == 0) params.out[0] = sum;
}

// A barrier that half of the block does not reach.
template <bool kWrong>
QUIRE_DEVICE void HalfBarrier(const PlantedParams& params) {
  const int t = ThreadIndex();
  if (!kWrong || t < kPlantedThreads / 2) BlockBarrier();
  params.out[t] = params.in[t];
}

// Reads one element behind the input's end.
template <bool kWrong>
QUIRE_DEVICE void Neighbour(const PlantedParams& params) {
  const int t = ThreadIndex();
  const int from = kWrong ? 4 * kPlantedBlocks * kPlantedThreads + t : t;
  params.out[t] = params.in[from];
}

// Reads two floats by one load: on x86 from any address, on a GPU from multiples of 8 alone.
template <bool kWrong>
QUIRE_DEVICE void Pairs(const PlantedParams& params) {
  const int t = ThreadIndex();
  const int from = kWrong ? t : t / 2 * 2;
  const uint64_t pair = *reinterpret_cast<const uint64_t*>(params.in + from);
  params.out[t] = FloatOfBits(static_cast<uint32_t>(t == from ? pair : pair >> 32));
}

#define QUIRE_PLANT(name, Body)                                                          \
  QUIRE_KERNEL(name##_right, PlantedParams, kPlantedThreads, 1) { Body<false>(params); } \
  QUIRE_KERNEL(name##_wrong, PlantedParams, kPlantedThreads, 1) { Body<true>(params); }
QUIRE_PLANT(planted_reverse, Reverse)
QUIRE_PLANT(planted_reverse_copied, ReverseCopied)
QUIRE_PLANT(planted_ring, Ring)
QUIRE_PLANT(planted_swap, SwapInWarp)
QUIRE_PLANT(planted_product, Product)
QUIRE_PLANT(planted_merge, Merge)
QUIRE_PLANT(planted_merge_unfenced, MergeUnfenced)
QUIRE_PLANT(planted_reverse_twice, ReverseTwice)
QUIRE_PLANT(planted_paged, Paged)
QUIRE_PLANT(planted_tail, SumOfPages)
QUIRE_PLANT(planted_half, HalfBarrier)
QUIRE_PLANT(planted_neighbour, Neighbour)
QUIRE_PLANT(planted_pairs, Pairs)

// Eight rows at a distance of 128 bytes lie in one group of banks; of 144 bytes, in eight.
template <int kStride>
QUIRE_DEVICE void Loads(const PlantedParams& params) {
  unsigned char* shared = SharedMemory();
  for (int i = ThreadIndex(); i < 32 * kStride / 4; i += kPlantedThreads) {
    Shared<uint32_t>()[i] = static_cast<uint32_t>(i);
  }
  BlockBarrier();
  if (WarpIndex() != 0) return;
  uint32_t r[4];
  LoadMatrices4(r, shared + Lane() * kStride);
  params.out[Lane()] = static_cast<float>(r[0] & 0xffffu);
}
QUIRE_KERNEL(planted_loads_128, PlantedParams, kPlantedThreads, 1) { Loads<128>(params); }
QUIRE_KERNEL(planted_loads_144, PlantedParams, kPlantedThreads, 1) { Loads<144>(params); }

runtime::KernelHandle ConflictingLoads() { return QUIRE_KERNEL_OF(planted_loads_128, 128); }
runtime::KernelHandle SpreadLoads() { return QUIRE_KERNEL_OF(planted_loads_144, 128); }

QUIRE_KERNEL(planted_writer, PlantedParams, kPlantedThreads, 1) {
  const int t = ThreadIndex();
  params.partial[t] = params.in[t] * 2.0f + params.out[t];
}
template <Follower kKind>
QUIRE_DEVICE void Follow(const PlantedParams& params) {
  const int t = ThreadIndex();
  const float constant = params.in[t];
  float read = 0.0f;
  if (kKind == Follower::kReadsEarly) read = params.partial[t];
  if (kKind == Follower::kWritesEarly) params.out[t] = 0.0f;
  if (kKind != Follower::kNeverWaits) WaitForEarlierKernels();
  LetLaterKernelsBegin();
  if (kKind == Follower::kNeverWaits) return;  // and uses nothing of the writer's
  if (kKind != Follower::kReadsEarly) read = params.partial[t];
  params.out[t] = read + constant - params.in[t];
}
QUIRE_KERNEL_AHEAD(planted_follow_right, PlantedParams, kPlantedThreads, 1) {
  Follow<Follower::kRight>(params);
}
QUIRE_KERNEL_AHEAD(planted_follow_reads, PlantedParams, kPlantedThreads, 1) {
  Follow<Follower::kReadsEarly>(params);
}
QUIRE_KERNEL_AHEAD(planted_follow_writes, PlantedParams, kPlantedThreads, 1) {
  Follow<Follower::kWritesEarly>(params);
}
QUIRE_KERNEL_AHEAD(planted_follow_never, PlantedParams, kPlantedThreads, 1) {
  Follow<Follower::kNeverWaits>(params);
}

runtime::KernelHandle InARow(Follower kind) {
  if (kind == Follower::kWriter) return QUIRE_KERNEL_OF(planted_writer, 128);
  if (kind == Follower::kRight) return QUIRE_KERNEL_OF(planted_follow_right, 128);
  if (kind == Follower::kReadsEarly) return QUIRE_KERNEL_OF(planted_follow_reads, 128);
  if (kind == Follower::kWritesEarly) return QUIRE_KERNEL_OF(planted_follow_writes, 128);
  return QUIRE_KERNEL_OF(planted_follow_never, 128);
}

namespace {

void ExpectReversed(const PlantedParams& params, float* out) {
  for (int t = 0; t < kPlantedThreads; ++t) out[t] = params.in[kPlantedThreads - 1 - t];
}
void ExpectSame(const PlantedParams& params, float* out) {
  for (int t = 0; t < kPlantedThreads; ++t) out[t] = params.in[t];
}
void ExpectRing(const PlantedParams& params, float* out) {
  for (int t = 0; t < kPlantedThreads; ++t) {
    out[t] = 0.0f;
    for (int s = 0; s < 4; ++s) {
      out[t] += params.in[s * kPlantedThreads + kPlantedThreads - 1 - t];
    }
  }
}
void ExpectSwapped(const PlantedParams& params, float* out) {
  for (int t = 0; t < kPlantedThreads; ++t) out[t] = params.in[t ^ 1];
}
void ExpectProduct(const PlantedParams& params, float* out) {
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      double sum = 0.0;
      for (int k = 0; k < 16; ++k) {
        const float b = ToFloat(Bf16{Bf16Bits(params.in[k * 8 + n])});
        sum += static_cast<double>(ToFloat(Bf16{params.matrix[m * 16 + k]})) * b;
      }
      out[m * 8 + n] = static_cast<float>(sum);
    }
  }
}
void ExpectMerged(const PlantedParams& params, float* out) {
  for (int t = 0; t < kPlantedThreads; ++t) {
    out[t] = 0.0f;
    for (int b = 0; b < kPlantedBlocks; ++b) out[t] += params.in[b * kPlantedThreads + t] * 2.0f;
  }
}
float Slot(const PlantedParams& params, int t) {
  return params.in[params.pages[t / kPlantedPage] * kPlantedPage + t % kPlantedPage];
}
void ExpectPaged(const PlantedParams& params, float* out) {
  for (int t = 0; t < params.length; ++t) out[t] = Slot(params, t);
}
void ExpectTail(const PlantedParams& params, float* out) {
  out[0] = 0.0f;
  for (int t = 0; t < params.length; ++t) out[0] += Slot(params, t);  // integers: exact
}

#define QUIRE_FORMS(name) QUIRE_KERNEL_OF(name##_right, 128), QUIRE_KERNEL_OF(name##_wrong, 128)
const Planted kPlanted[] = {
    {"missing barrier", QUIRE_FORMS(planted_reverse), ExpectReversed, 128, 1},
    {"missing wait", QUIRE_FORMS(planted_reverse_copied), ExpectReversed, 128, 1},
    {"stage filled too early", QUIRE_FORMS(planted_ring), ExpectRing, 128, 1},
    {"missing warp barrier", QUIRE_FORMS(planted_swap), ExpectSwapped, 128, 1},
    {"wrong matrix row", QUIRE_FORMS(planted_product), ExpectProduct, 128, 1},
    {"missing fence before a merge", QUIRE_FORMS(planted_merge), ExpectMerged, 128, kPlantedBlocks},
    {"missing fence after a merge's atomic", QUIRE_FORMS(planted_merge_unfenced), ExpectMerged, 128,
     kPlantedBlocks},
    {"written while it is read", QUIRE_FORMS(planted_reverse_twice), ExpectSame, 128, 1},
    {"wrong page index", QUIRE_FORMS(planted_paged), ExpectPaged, 0, 1},
    {"stale tail slot", QUIRE_FORMS(planted_tail), ExpectTail, 1, 1},
    {"barrier in a branch", QUIRE_FORMS(planted_half), ExpectSame, 128, 1},
    {"read behind the end", QUIRE_FORMS(planted_neighbour), ExpectSame, 128, 1},
    {"misaligned load", QUIRE_FORMS(planted_pairs), ExpectSame, 128, 1},
};

}  // namespace

const Planted* AllPlanted(int* count) {
  *count = static_cast<int>(sizeof(kPlanted) / sizeof(kPlanted[0]));
  return kPlanted;
}

}  // namespace quire::kernels::cuda::test
