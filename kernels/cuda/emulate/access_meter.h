// Combines the accesses of lanes, which run separately here, into instructions of a warp, and
// computes the cost of each.
//
// The n-th access of each lane at one place of the code, since the last block barrier, counts as
// one instruction. Where lanes take a branch differently that is an estimate.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace quire::kernels::cuda::emulate {

// One instruction of a warp: the offsets of the lanes that took part.
struct WarpAccess {
  uint32_t lanes = 0;
  uint32_t bytes = 0;  // of each lane
  std::array<uint32_t, 32> offset;
};

// Passes over the banks beyond the minimum of `count` ≤ 8 accesses of 16 bytes. Shared memory has
// 32 banks of 4 bytes: eight accesses take one pass when they are in different groups of four banks
// or are the same.
uint32_t ExtraPasses(const uint32_t* offsets, uint32_t count);

// Costs: extra passes of a 16-byte access of shared memory, which hardware does by quarters of
// eight lanes; and the bytes of the 32-byte sectors that an access of global memory touches.
uint32_t BankCost(const WarpAccess& access);
uint32_t SectorCost(const WarpAccess& access);

class AccessMeter {
 public:
  using Cost = uint32_t (*)(const WarpAccess&);
  explicit AccessMeter(Cost cost) : cost_(cost) {}

  // The lane's next access at `site`. Returns the cost of the instruction that this completes,
  // otherwise 0.
  uint32_t Note(const void* site, uint32_t lane, uint32_t offset, uint32_t bytes);
  // The cost of the instructions in which not all lanes took part. Forgets all accesses.
  uint32_t Finish();
  // Forgets the sites too.
  void Clear();

 private:
  struct Site {
    const void* at = nullptr;
    uint32_t first = 0;               // the number of accesses[0]
    uint32_t complete = 0;            // of `accesses`: counted already
    bool used = false;                // since Finish
    std::array<uint32_t, 32> done{};  // accesses by lane
    std::vector<WarpAccess> accesses;
  };

  uint32_t IndexOf(const void* site);
  uint32_t* SlotOf(const void* site);

  Cost cost_;
  std::vector<Site> sites_;
  std::vector<uint32_t> slots_;  // of a hash table: 1 + a site's index; 0: free
  std::vector<uint32_t> used_;   // indices
};

}  // namespace quire::kernels::cuda::emulate
