// Runs kernels as emulated grids on the host: the meaning of a launch, its races, and what it
// costs.
//
// Owned by the emulated runtime or by a test; one thread. A launch runs to its end inside Run, on
// fibers of the calling thread: several blocks at once, in an order and interleaving drawn from the
// seed. The same seed gives the same run.
//
// Detected exactly, for any interleaving: races in shared and global memory, reads of shared memory
// that no thread wrote, touching bytes of an asynchronous copy before its wait, accesses outside
// allocations, and barriers that not all threads reach. Also copies without a wait, and reads of an
// earlier kernel's results without a wait for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/emulate/device_memory.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda::emulate {

// The cost of a launch, or of several.
struct Counters {
  uint64_t launches = 0;
  uint64_t blocks = 0;
  // Sectors of 32 bytes that each instruction of a warp touches, in bytes: no cache is assumed, and
  // scattered accesses have their full cost.
  uint64_t global_read_bytes = 0;
  uint64_t global_write_bytes = 0;
  uint64_t tensor_tiles = 0;  // 16 × 8 × 16 products
  uint64_t matrix_loads = 0;  // of 8 × 8
  // Passes over the banks beyond the least: of matrix loads, and of 16-byte accesses and copies.
  uint64_t bank_conflicts = 0;
  uint64_t async_copies = 0;
  uint64_t block_barriers = 0;

  void Add(const Counters& other);
};

struct Report {
  std::vector<std::string> violations;  // each kind once per kernel, at most kMaxViolations
  Counters counters;
  uint32_t first_block = 0;  // blocks count over all launches, from 1
};

// kNone: results alone. Nothing is checked, counted or delayed, blocks run one after another, and
// kernel files may be compiled without hooks: for serving models, tens of times as fast.
enum class Checks : uint8_t { kAll, kNone };

class Emulator {
 public:
  static constexpr size_t kMaxViolations = 32;
  static constexpr uint32_t kMaxThreads = 1024;
  static constexpr uint32_t kMaxSharedBytes = 227 << 10;

  explicit Emulator(Checks checks = Checks::kAll);
  ~Emulator();

  DeviceMemory& memory() { return *memory_; }

  // `running`: the first block of the oldest launch that a device could still be running when this
  // one begins, whose and whose followers' accesses are not ordered before those of a thread that
  // has not waited. 0: there is none.
  Report Run(const runtime::KernelHandle& kernel, const runtime::LaunchShape& shape, uint64_t seed,
             uint32_t running = 0);

 private:
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<class Machine> machine_;
};

}  // namespace quire::kernels::cuda::emulate
