// The running grid: blocks, warps, threads, which of them are ready, what they wait for.
//
// Owned by an Emulator. The functions that device code calls (device/emulated_calls.h) find the
// machine through running_machine, which is set while a launch runs.
//
// Invariants:
// 1. Exactly one fiber runs. A lane is running, ready, waiting at a meeting of its warp, waiting at
//    the block's barrier, or has ended.
// 2. A warp is in `ready_` iff it has a ready lane.
// 3. A meeting (barrier, shuffle, matrix load, product) completes when all 32 lanes are in it, all
//    in the same kind.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/emulate/block.h"
#include "kernels/cuda/emulate/emulator.h"
#include "kernels/cuda/emulate/fiber.h"
#include "kernels/cuda/emulate/random.h"

namespace quire::kernels::cuda::emulate {

class Machine {
 public:
  static constexpr uint32_t kMaxResident = 4;  // blocks
  // Distance of two blocks' shared buffers: the memory between them belongs to no block.
  static constexpr size_t kSharedStride = size_t{256} << 10;

  Machine(DeviceMemory& memory, Checks checks) : memory_(memory), checks_(checks == Checks::kAll) {}
  ~Machine();

  // As Emulator::Run.
  Report Run(const runtime::KernelHandle& kernel, const runtime::LaunchShape& shape, uint64_t seed,
             uint32_t running);

  // Called by the running thread.
  Thread& Self() { return *current_; }
  Block& SelfBlock() { return *current_->warp->block; }
  bool checks() const { return checks_; }
  uint32_t shared_bytes() const { return shape_.shared_bytes; }
  Counters& counters() { return report_.counters; }
  // Waits until all lanes of the warp have called it; the last one runs `meeting`.
  void Meet(Meeting meeting);
  void BlockBarrier();
  void Fence();
  uint64_t Atomic(emulated::AtomicOp op, void* at, uint32_t bytes, uint64_t operand);
  void AsyncCopy(unsigned char* to, const unsigned char* from, uint32_t valid, const void* site);
  void AsyncWait(uint32_t newest);
  // Sometimes lets others run first.
  void MaybeYield();

  // Checks an access of `thread`. False: the access is not allowed.
  bool Touch(Thread& thread, const void* at, size_t bytes, Access access);
  // The same for the running thread, and counts its cost at a place of the code: sectors of global
  // memory, passes over the banks for 16 bytes of shared memory.
  bool TouchAt(const void* site, const void* at, size_t bytes, Access access) {
    return !IsWatched(at) || TouchWatched(site, at, bytes, access);
  }
  // A GPU refuses what a CPU permits: an access that is not aligned to its size.
  void Misaligned(const void* at, size_t bytes);
  bool InShared(const void* at) const {
    return reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(current_->shared) <
           shape_.shared_bytes;
  }
  void Violation(const Thread& thread, const std::string& what);

  // The life of a fiber: the kernel with the launch's parameters, then the end.
  void EnterKernel() const;
  [[noreturn]] void EndThread();

 private:
  void Prepare();
  void ShapeBlock(uint32_t number, uint32_t threads);
  void StartBlock(Block& block);
  void StartThread(Thread& thread, const Block& block) const;
  void FinishBlock(Block& block);
  void ReportDeadlock();
  Thread* Pick();
  Thread* PickAtRandom();
  Thread* PickInOrder();
  Thread* Take(Warp& warp, uint32_t lane);
  void Suspend();
  void MakeReady(Warp& warp, uint32_t lanes);
  // Otherwise it is the thread's own stack, parameters, constants; or nothing is checked.
  bool IsWatched(const void* at) const { return checks_ && (InSlab(at) || memory_.Owns(at)); }
  bool InSlab(const void* at) const {
    return reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(shared_slab_) <
           kMaxResident * kSharedStride;
  }
  bool TouchWatched(const void* site, const void* at, size_t bytes, Access access);
  void TouchShared(Thread& thread, size_t offset, size_t bytes, Access access);
  void TouchGlobal(Thread& thread, size_t offset, size_t bytes, Access access);
  void CountWarp(Warp& warp);
  Stamp Now(const Thread& thread) const;
  Accessor AccessorOf(const Thread& thread) const;
  void Move(PendingCopy& copy);
  void MoveSome(Thread& thread);
  void Exchange(Thread& thread, const void* at);

  DeviceMemory& memory_;
  const bool checks_;
  Shadow shared_shadow_{/*must_be_written=*/true};
  Shadow global_shadow_{/*must_be_written=*/false};
  FiberStacks stacks_;
  unsigned char* shared_slab_ = nullptr;
  std::array<Block, kMaxResident> blocks_;  // the first `resident_` are used in this launch
  uint32_t resident_ = 0;
  std::vector<Warp*> ready_;
  Thread* current_ = nullptr;
  void* host_stack_pointer_ = nullptr;
  Random random_{0};
  uint32_t next_serial_ = 1;
  uint32_t first_serial_ = 1;    // of this launch
  uint32_t running_serial_ = 1;  // of the oldest launch that may still run

  const runtime::KernelHandle* kernel_ = nullptr;
  runtime::LaunchShape shape_;
  std::vector<uint32_t> order_;                       // block numbers still to start
  std::map<uintptr_t, std::vector<Stamp>> released_;  // by atomic variable
  std::vector<unsigned char> params_;
  Report report_;
};

// The machine whose launch this thread is in, or null.
inline constinit thread_local Machine* running_machine = nullptr;

}  // namespace quire::kernels::cuda::emulate
