// A flow of control with its own stack, switched by hand: one per emulated GPU thread.
//
// x86-64, System V calling convention. All fibers of a grid run on the one host thread that runs
// it. A fiber that is abandoned half-way is simply never resumed: kernels own nothing that needs a
// destructor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::kernels::cuda::emulate {

// Saves the registers that a call must keep on the running stack, stores the stack pointer in
// *from, and continues where `to` was saved.
extern "C" void quire_switch_fiber(void** from, void* to);

// The stack pointer of a fiber that begins with entry(), which must never return. `stack` is
// `bytes` long and ends on a multiple of 16.
void* NewFiber(unsigned char* stack, size_t bytes, void (*entry)());

// Stacks for many fibers, of one anonymous mapping. Each begins with a word that an overflow
// destroys.
class FiberStacks {
 public:
  // An odd number of pages: were it a power of two, the tops of all stacks would share a few sets
  // of the processor's table of pages, and most switches would walk the tables.
  static constexpr size_t kStackBytes = 68 << 10;

  FiberStacks() = default;
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  // Makes room for `count` stacks and uses the first `used` of them; where there was less room,
  // earlier stacks are gone.
  void Resize(size_t count, size_t used);
  unsigned char* At(size_t index) const { return base_ + index * kStackBytes; }
  // False when one of the first `used` stacks has overflowed at some time.
  bool Intact(size_t used) const;

 private:
  void Map(size_t count);

  unsigned char* base_ = nullptr;
  size_t count_ = 0;
  size_t marked_ = 0;  // stacks whose first word has been written
};

}  // namespace quire::kernels::cuda::emulate
