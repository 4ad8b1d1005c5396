// The host bodies of device code: what kernels/cuda/device declares, and the hooks that the
// compiler plants at every load and store of a kernel file (-fsanitize=thread).
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/emulate/machine.h"

namespace quire::kernels::cuda::emulate {
namespace {

Machine& Running() {
  Machine* machine = running_machine;
  if (machine == nullptr) [[unlikely]] {
    fprintf(stderr, "device code was called outside a launch\n");
    abort();
  }
  return *machine;
}

void MeetBarrier(Machine&, Warp& warp) { ++warp.epoch; }

void MeetShuffle(Machine&, Warp& warp) {
  ShuffledValues& values = warp.shuffled;
  for (uint32_t i = 0; i < 32; ++i) values.got[i] = values.given[values.from[i] % 32];
}

void MeetBallot(Machine&, Warp& warp) {
  uint64_t lanes = 0;
  for (uint32_t i = 0; i < 32; ++i) lanes |= warp.shuffled.given[i] << i;
  warp.shuffled.got.fill(lanes);
}

// Rows that may not be read become NaN.
void CheckRows(Machine& machine, Warp& warp) {
  alignas(16) static constexpr unsigned char kNobodys[16] = {
      255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
  for (uint32_t first = 0; first < 8 * warp.matrices.count; first += 8) {
    uint32_t offsets[8];
    for (uint32_t r = 0; r < 8; ++r) {
      Thread& thread = warp.threads[first + r];
      const unsigned char*& row = warp.matrices.row[first + r];
      offsets[r] = static_cast<uint32_t>(row - thread.shared);
      if (!machine.InShared(row) || offsets[r] % 16 != 0) {
        machine.Violation(thread, "loads a matrix row that is not 16 aligned shared bytes");
        row = kNobodys;
      } else if (!machine.Touch(thread, row, 16, Access::kRead)) {
        row = kNobodys;
      }
    }
    machine.counters().bank_conflicts += ExtraPasses(offsets, 8);
  }
}

void MeetMatrices(Machine& machine, Warp& warp) {
  if (machine.checks()) CheckRows(machine, warp);
  const MatrixRows& matrices = warp.matrices;
  machine.counters().matrix_loads += matrices.count;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t r = lane / 4;
    const uint32_t c = lane % 4 * 2;
    for (uint32_t m = 0; m < matrices.count; ++m) {
      const unsigned char* const* rows = &matrices.row[size_t{8} * m];
      uint32_t& out = matrices.out[lane][m];
      if (matrices.transposed) {
        uint16_t low;
        uint16_t high;
        memcpy(&low, rows[c] + 2 * r, 2);
        memcpy(&high, rows[c + 1] + 2 * r, 2);
        out = low | static_cast<uint32_t>(high) << 16;
      } else {
        memcpy(&out, rows[r] + 2 * c, 4);
      }
    }
  }
}

void MeetProduct(Machine& machine, Warp& warp) {
  const bool bytes = warp.product.element >= emulated::Element::kInt8;
  bytes ? MultiplyBytes(warp.product) : MultiplyTile(warp.product);
  ++machine.counters().tensor_tiles;
}

[[gnu::always_inline]] inline void Hook(const void* at, size_t bytes, Access access) {
  Machine* machine = running_machine;
  if (machine != nullptr) machine->TouchAt(__builtin_return_address(0), at, bytes, access);
}

// Of a type whose alignment the compiler relies on, as a GPU does.
[[gnu::always_inline]] inline void HookAligned(const void* at, size_t bytes, Access access) {
  if (running_machine != nullptr && reinterpret_cast<uintptr_t>(at) % bytes != 0) {
    running_machine->Misaligned(at, bytes);
  }
  Hook(at, bytes, access);
}

}  // namespace
}  // namespace quire::kernels::cuda::emulate

namespace quire::kernels::cuda::emulated {

using emulate::Access;
using emulate::Running;

const Place& Here() { return Running().Self().place; }
unsigned char* SharedBuffer() { return Running().Self().shared; }
uint32_t SharedBytes() { return Running().shared_bytes(); }
void WaitForEarlierKernels() { Running().Self().waited = true; }
void BlockBarrier() { Running().BlockBarrier(); }
void WarpBarrier() { Running().Meet(&emulate::MeetBarrier); }
void Fence() { Running().Fence(); }

uint64_t Shuffle(uint64_t value, uint32_t from) {
  emulate::Machine& machine = Running();
  const uint32_t lane = machine.Self().Lane();
  emulate::ShuffledValues& values = machine.Self().warp->shuffled;
  values.given[lane] = value;
  values.from[lane] = from;
  machine.Meet(&emulate::MeetShuffle);
  return values.got[lane];
}

uint32_t Ballot(bool predicate) {
  emulate::Machine& machine = Running();
  const uint32_t lane = machine.Self().Lane();
  emulate::ShuffledValues& values = machine.Self().warp->shuffled;
  values.given[lane] = predicate ? 1 : 0;
  machine.Meet(&emulate::MeetBallot);
  return static_cast<uint32_t>(values.got[lane]);
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
  if (machine.checks()) {
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0) {
      machine.Violation(machine.Self(),
                        "reads 16 bytes at an address that is not a multiple of 16");
    }
    memset(out, 0xff, 16);
    if (!machine.TouchAt(__builtin_return_address(0), from, 16, Access::kRead)) return;
  }
  memcpy(out, from, 16);
}

void Write16(void* to, const void* value) {
  emulate::Machine& machine = Running();
  if (machine.checks()) {
    if (reinterpret_cast<uintptr_t>(to) % 16 != 0) {
      machine.Violation(machine.Self(),
                        "writes 16 bytes at an address that is not a multiple of 16");
    }
    if (!machine.TouchAt(__builtin_return_address(0), to, 16, Access::kWrite)) return;
  }
  memcpy(to, value, 16);
}

void LoadMatrices(uint32_t* out, const void* row, uint32_t count, bool transposed) {
  emulate::Machine& machine = Running();
  const uint32_t lane = machine.Self().Lane();
  emulate::MatrixRows& matrices = machine.Self().warp->matrices;
  matrices.row[lane] = static_cast<const unsigned char*>(row);
  matrices.out[lane] = out;
  matrices.count = count;
  matrices.transposed = transposed;
  machine.Meet(&emulate::MeetMatrices);
}

void Multiply(float* d, const uint32_t* a, const uint32_t* b, Element element) {
  emulate::Machine& machine = Running();
  const emulate::Thread& self = machine.Self();
  self.warp->product.element = element;
  emulate::GiveFragments(self.warp->product, self.Lane(), d, a, b);
  machine.Meet(&emulate::MeetProduct);
}

}  // namespace quire::kernels::cuda::emulated

// The hooks of -fsanitize=thread. A plain access outside an allocation cannot be prevented: the
// addresses around allocations are mapped, so it is reported and harms nothing. The compiler
// defines the names.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wreserved-identifier"
#endif
extern "C" {
using quire::kernels::cuda::emulate::Access;
using quire::kernels::cuda::emulate::Hook;
using quire::kernels::cuda::emulate::HookAligned;

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read1(void* at) { Hook(at, 1, Access::kRead); }
void __tsan_read2(void* at) { HookAligned(at, 2, Access::kRead); }
void __tsan_read4(void* at) { HookAligned(at, 4, Access::kRead); }
void __tsan_read8(void* at) { HookAligned(at, 8, Access::kRead); }
void __tsan_read16(void* at) { Hook(at, 16, Access::kRead); }
void __tsan_write1(void* at) { Hook(at, 1, Access::kWrite); }
void __tsan_write2(void* at) { HookAligned(at, 2, Access::kWrite); }
void __tsan_write4(void* at) { HookAligned(at, 4, Access::kWrite); }
void __tsan_write8(void* at) { HookAligned(at, 8, Access::kWrite); }
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
