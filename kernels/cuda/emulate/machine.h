// The grid as it runs: blocks, warps, threads, who is ready, what they wait for.
//
// Owned by an Emulator. The functions that device code calls (device/emulated_calls.h) find the
// machine through RunningMachine(), which is set while a launch runs.
//
// Invariants:
// 1. Exactly one fiber runs. A lane is running, ready, waiting at a meeting of its warp, waiting at
//    the block's barrier, or has ended.
// 2. A warp stands in `ready_` iff it has a ready lane.
// 3. A meeting (barrier, shuffle, matrix load, product) completes when all 32 lanes stand in it,
//    all in the same kind.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device/emulated_calls.h"
#include "kernels/cuda/emulate/access_meter.h"
#include "kernels/cuda/emulate/emulator.h"
#include "kernels/cuda/emulate/fiber.h"
#include "kernels/cuda/emulate/random.h"

namespace quire::kernels::cuda::emulate {

struct Block;
struct Warp;

struct PendingCopy {
  unsigned char* to;
  const unsigned char* from;
  uint32_t valid;
  uint32_t group;  // the commits before it
  bool moved;
};

struct Thread {
  void* stack_pointer = nullptr;
  size_t fiber = 0;
  emulated::Place place;
  Warp* warp = nullptr;
  uint16_t fences = 0;
  Stamp last_fence;            // mark kNone: none yet
  std::vector<Stamp> carried;  // what it had acquired at that fence
  std::vector<Stamp> seen;     // read by its atomics since its last fence
  std::vector<PendingCopy> copies;
  uint32_t commits = 0;
  bool waited = false;  // for the kernels that were launched before

  uint32_t Lane() const { return place.thread % 32; }
};

// What the lanes of a warp wait for together.
using Meeting = void (*)(class Machine& machine, Warp& warp);

struct Warp {
  Block* block = nullptr;
  uint32_t first_thread = 0;
  uint32_t ready = 0;  // lanes
  uint32_t met = 0;    // lanes that stand in `meeting`
  uint32_t epoch = 0;  // warp barriers passed
  Meeting meeting = nullptr;
  std::array<void*, 32> argument{};
  AccessMeter banks{&BankCost};
  AccessMeter reads{&SectorCost};
  AccessMeter writes{&SectorCost};
};

struct Block {
  emulated::Index index;
  uint32_t serial = 0;
  uint32_t epoch = 0;    // block barriers passed
  uint32_t waiting = 0;  // threads at the block's barrier
  uint32_t alive = 0;
  bool running = false;
  unsigned char* shared = nullptr;
  std::vector<Cell> cells;
  std::vector<Acquisition> acquisitions;
  std::vector<Warp> warps;
  std::vector<Thread> threads;
};

class Machine {
 public:
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
  void Meet(Meeting meeting, void* argument);
  void BlockBarrier();
  void Fence();
  uint64_t Atomic(emulated::AtomicOp op, void* at, uint32_t bytes, uint64_t operand);
  void AsyncCopy(unsigned char* to, const unsigned char* from, uint32_t valid, const void* site);
  void AsyncWait(uint32_t newest);
  // Lets others run first, sometimes.
  void MaybeYield();

  // Checks an access of `thread`. False: it may not be done.
  bool Touch(Thread& thread, const void* at, size_t bytes, Access access);
  // The same for the running thread, and counts what it costs at a place of the code: sectors of
  // global memory, passes over the banks for 16 bytes of shared memory.
  bool TouchAt(const void* site, const void* at, size_t bytes, Access access);
  bool InShared(const void* at);
  void Violation(const Thread& thread, const std::string& what);

  // The life of a fiber: the kernel with the launch's parameters, then the end.
  void EnterKernel() const;
  [[noreturn]] void EndThread();

 private:
  void Prepare();
  void StartBlock(Block& block);
  void FinishBlock(Block& block);
  void ReportDeadlock();
  Thread* Pick();
  void Suspend();
  void MakeReady(Warp& warp, uint32_t lanes);
  bool TouchShared(Thread& thread, size_t offset, size_t bytes, Access access);
  bool TouchGlobal(Thread& thread, size_t offset, size_t bytes, Access access);
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
  std::vector<std::unique_ptr<Block>> blocks_;  // resident
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
Machine*& RunningMachine();

}  // namespace quire::kernels::cuda::emulate
