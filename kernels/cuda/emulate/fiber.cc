#include "kernels/cuda/emulate/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

asm(R"(
.text
.globl quire_switch_fiber
.type quire_switch_fiber,@function
quire_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size quire_switch_fiber, .-quire_switch_fiber
)");

namespace quire::kernels::cuda::emulate {
namespace {
constexpr uint64_t kCanary = 0x5149524546494245ull;
}

void* NewFiber(unsigned char* stack, size_t bytes, void (*entry)()) {
  // From the top: a null return address, entry(), six saved registers. After the pops and `ret` the
  // stack is aligned as at the first instruction of a function.
  void** top = reinterpret_cast<void**>(stack + bytes);
  top[-1] = nullptr;
  top[-2] = reinterpret_cast<void*>(entry);
  for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
  return &top[-8];
}

FiberStacks::~FiberStacks() {
  if (base_ != nullptr) munmap(base_, count_ * kStackBytes);
}

void FiberStacks::Resize(size_t count, size_t used) {
  if (count > count_) Map(count);
  for (; marked_ < used; ++marked_) memcpy(At(marked_), &kCanary, sizeof(kCanary));
}

void FiberStacks::Map(size_t count) {
  if (base_ != nullptr) munmap(base_, count_ * kStackBytes);
  void* at = mmap(nullptr, count * kStackBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    fprintf(stderr, "emulated grid: no memory for %zu stacks\n", count);
    abort();
  }
  base_ = static_cast<unsigned char*>(at);
  count_ = count;
  marked_ = 0;
}

bool FiberStacks::Intact(size_t used) const {
  for (size_t i = 0; i < used; ++i) {
    if (memcmp(At(i), &kCanary, sizeof(kCanary)) != 0) return false;
  }
  return true;
}

}  // namespace quire::kernels::cuda::emulate
