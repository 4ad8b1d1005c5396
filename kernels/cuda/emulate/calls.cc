// The host bodies of device code: what kernels/cuda/device declares, and the hooks that the
// compiler plants at every load and store of a kernel file (-fsanitize=thread).
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/emulate/machine.h"

namespace quire::kernels::cuda::emulate {
namespace {

struct ShuffleArgument {
  uint64_t value;
  uint32_t from;
  uint64_t result;
};

struct MatrixArgument {
  const unsigned char* row;
  uint32_t* out;
  uint32_t count;
  bool transposed;
};

struct ProductArgument {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
  emulated::Element element;
};

Machine& Running() {
  Machine* machine = RunningMachine();
  if (machine == nullptr) {
    fprintf(stderr, "device code was called outside a launch\n");
    abort();
  }
  return *machine;
}

void MeetBarrier(Machine&, Warp& warp) { ++warp.epoch; }

void MeetShuffle(Machine&, Warp& warp) {
  for (void* argument : warp.argument) {
    auto& mine = *static_cast<ShuffleArgument*>(argument);
    mine.result = static_cast<ShuffleArgument*>(warp.argument[mine.from % 32])->value;
  }
}

void MeetBallot(Machine&, Warp& warp) {
  uint64_t lanes = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    lanes |= static_cast<ShuffleArgument*>(warp.argument[i])->value << i;
  }
  for (void* argument : warp.argument) static_cast<ShuffleArgument*>(argument)->result = lanes;
}

void MeetMatrices(Machine& machine, Warp& warp) {
  const auto lane = [&](uint32_t i) -> MatrixArgument& {
    return *static_cast<MatrixArgument*>(warp.argument[i]);
  };
  const uint32_t count = lane(0).count;
  Block& block = *warp.block;
  for (uint32_t m = 0; m < count; ++m) {
    uint32_t offsets[8];
    uint16_t element[8][8];
    for (uint32_t r = 0; r < 8; ++r) {
      Thread& thread = block.threads[warp.first_thread + 8 * m + r];
      const unsigned char* row = lane(8 * m + r).row;
      memset(element[r], 0xff, 16);
      offsets[r] = static_cast<uint32_t>(row - block.shared);
      if (!machine.InShared(row) || offsets[r] % 16 != 0) {
        machine.Violation(thread, "loads a matrix row that is not 16 aligned shared bytes");
      } else if (machine.Touch(thread, row, 16, Access::kRead)) {
        memcpy(element[r], row, 16);
      }
    }
    if (machine.checks()) machine.counters().bank_conflicts += ExtraPasses(offsets, 8);
    ++machine.counters().matrix_loads;
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t r = i / 4;
      const uint32_t c = i % 4 * 2;
      const bool turned = lane(i).transposed;
      const uint32_t low = turned ? element[c][r] : element[r][c];
      const uint32_t high = turned ? element[c + 1][r] : element[r][c + 1];
      lane(i).out[m] = low | high << 16;
    }
  }
}

float FloatOf(uint16_t bits, emulated::Element element) {
  if (element == emulated::Element::kBf16) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  }
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) {  // infinity and NaN
    return __builtin_bit_cast(float, sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  }
  // 2^112 brings the exponent to float32's, subnormal numbers too.
  const float magnitude = __builtin_bit_cast(float, rest << 13) * 0x1p112f;
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, magnitude));
}

void MeetProduct(Machine& machine, Warp& warp) {
  double a[16][16];  // row, k
  double b[16][8];   // k, column
  double d[16][8];
  for (uint32_t i = 0; i < 32; ++i) {
    const auto& mine = *static_cast<ProductArgument*>(warp.argument[i]);
    const uint32_t g = i / 4;
    const uint32_t t = i % 4 * 2;
    for (uint32_t part = 0; part < 4; ++part) {
      const uint32_t row = g + (part & 1) * 8;
      const uint32_t k = t + (part >> 1) * 8;
      a[row][k] = FloatOf(static_cast<uint16_t>(mine.a[part]), mine.element);
      a[row][k + 1] = FloatOf(static_cast<uint16_t>(mine.a[part] >> 16), mine.element);
      d[g + (part >> 1) * 8][t + (part & 1)] = mine.d[part];
    }
    for (uint32_t part = 0; part < 2; ++part) {
      b[t + part * 8][g] = FloatOf(static_cast<uint16_t>(mine.b[part]), mine.element);
      b[t + part * 8 + 1][g] = FloatOf(static_cast<uint16_t>(mine.b[part] >> 16), mine.element);
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (uint32_t i = 0; i < 32; ++i) {
    auto& mine = *static_cast<ProductArgument*>(warp.argument[i]);
    for (uint32_t part = 0; part < 4; ++part) {
      mine.d[part] = static_cast<float>(d[i / 4 + (part >> 1) * 8][i % 4 * 2 + (part & 1)]);
    }
  }
  ++machine.counters().tensor_tiles;
}

[[gnu::always_inline]] inline void Hook(const void* at, size_t bytes, Access access) {
  Machine* machine = RunningMachine();
  if (machine != nullptr) machine->TouchAt(__builtin_return_address(0), at, bytes, access);
}

}  // namespace
}  // namespace quire::kernels::cuda::emulate

namespace quire::kernels::cuda::emulated {

using emulate::Access;
using emulate::Running;

const Place& Here() { return Running().Self().place; }
unsigned char* SharedBuffer() { return Running().SelfBlock().shared; }
uint32_t SharedBytes() { return Running().shared_bytes(); }
void WaitForEarlierKernels() { Running().Self().waited = true; }
void BlockBarrier() { Running().BlockBarrier(); }
void WarpBarrier() { Running().Meet(&emulate::MeetBarrier, nullptr); }
void Fence() { Running().Fence(); }

uint64_t Shuffle(uint64_t value, uint32_t from) {
  emulate::ShuffleArgument argument{value, from, 0};
  Running().Meet(&emulate::MeetShuffle, &argument);
  return argument.result;
}

uint32_t Ballot(bool predicate) {
  emulate::ShuffleArgument argument{predicate ? 1u : 0u, 0, 0};
  Running().Meet(&emulate::MeetBallot, &argument);
  return static_cast<uint32_t>(argument.result);
}

uint64_t Atomic(AtomicOp op, void* at, uint32_t bytes, uint64_t operand) {
  return Running().Atomic(op, at, bytes, operand);
}

void AsyncCopy16(void* to, const void* from, uint32_t valid) {
  Running().AsyncCopy(static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from),
                      valid, __builtin_return_address(0));
}
void AsyncCommit() { ++Running().Self().commits; }
void AsyncWait(uint32_t newest) { Running().AsyncWait(newest); }

void Read16(void* out, const void* from) {
  emulate::Machine& machine = Running();
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    machine.Violation(machine.Self(), "reads 16 bytes at an address that is not a multiple of 16");
  }
  memset(out, 0xff, 16);
  if (machine.TouchAt(__builtin_return_address(0), from, 16, Access::kRead)) memcpy(out, from, 16);
}

void Write16(void* to, const void* value) {
  emulate::Machine& machine = Running();
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0) {
    machine.Violation(machine.Self(), "writes 16 bytes at an address that is not a multiple of 16");
  }
  if (machine.TouchAt(__builtin_return_address(0), to, 16, Access::kWrite)) memcpy(to, value, 16);
}

void LoadMatrices(uint32_t* out, const void* row, uint32_t count, bool transposed) {
  emulate::MatrixArgument argument{static_cast<const unsigned char*>(row), out, count, transposed};
  Running().Meet(&emulate::MeetMatrices, &argument);
}

void Multiply(float* d, const uint32_t* a, const uint32_t* b, Element element) {
  emulate::ProductArgument argument{d, a, b, element};
  Running().Meet(&emulate::MeetProduct, &argument);
}

}  // namespace quire::kernels::cuda::emulated

// The hooks of -fsanitize=thread. A plain access outside an allocation cannot be kept from
// happening: the addresses around allocations are mapped, so it is told and harms nothing.
extern "C" {
using quire::kernels::cuda::emulate::Access;
using quire::kernels::cuda::emulate::Hook;

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read1(void* at) { Hook(at, 1, Access::kRead); }
void __tsan_read2(void* at) { Hook(at, 2, Access::kRead); }
void __tsan_read4(void* at) { Hook(at, 4, Access::kRead); }
void __tsan_read8(void* at) { Hook(at, 8, Access::kRead); }
void __tsan_read16(void* at) { Hook(at, 16, Access::kRead); }
void __tsan_write1(void* at) { Hook(at, 1, Access::kWrite); }
void __tsan_write2(void* at) { Hook(at, 2, Access::kWrite); }
void __tsan_write4(void* at) { Hook(at, 4, Access::kWrite); }
void __tsan_write8(void* at) { Hook(at, 8, Access::kWrite); }
void __tsan_write16(void* at) { Hook(at, 16, Access::kWrite); }
void __tsan_unaligned_read2(void* at) { Hook(at, 2, Access::kRead); }
void __tsan_unaligned_read4(void* at) { Hook(at, 4, Access::kRead); }
void __tsan_unaligned_read8(void* at) { Hook(at, 8, Access::kRead); }
void __tsan_unaligned_write2(void* at) { Hook(at, 2, Access::kWrite); }
void __tsan_unaligned_write4(void* at) { Hook(at, 4, Access::kWrite); }
void __tsan_unaligned_write8(void* at) { Hook(at, 8, Access::kWrite); }
void __tsan_read_range(void* at, size_t bytes) { Hook(at, bytes, Access::kRead); }
void __tsan_write_range(void* at, size_t bytes) { Hook(at, bytes, Access::kWrite); }
}
