// Counts the passes over the banks of shared memory that 16-byte accesses of a warp need beyond the
// least.
//
// Shared memory has 32 banks of 4 bytes. A warp's 16-byte access is done by quarters of eight
// lanes, one pass each when the eight addresses lie in different groups of four banks or are the
// same. Lanes run apart here, so the n-th access of each lane at one place of the code is taken as
// one instruction of the warp.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

namespace quire::kernels::cuda::emulate {

// Extra passes of one matrix load or quarter: `offsets` of `count` ≤ 8 rows of 16 bytes.
uint32_t ExtraPasses(const uint32_t* offsets, uint32_t count);

class BankMeter {
 public:
  // Lane's next access at `site`. Returns the extra passes of an instruction that this completes.
  uint32_t Note(const void* site, uint32_t lane, uint32_t offset);
  // The extra passes of instructions that not all lanes took part in. Forgets everything.
  uint32_t Finish();

 private:
  struct Instruction {
    uint32_t lanes = 0;
    std::array<uint32_t, 32> offset;
  };
  struct Site {
    const void* address;
    std::array<uint32_t, 32> done{};  // accesses by lane
    uint32_t first = 0;               // the number of instructions[0]
    std::deque<Instruction> instructions;
  };
  static uint32_t Cost(const Instruction& instruction);

  std::vector<Site> sites_;
  size_t last_ = 0;
};

}  // namespace quire::kernels::cuda::emulate
