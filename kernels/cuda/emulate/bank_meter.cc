#include "kernels/cuda/emulate/bank_meter.h"

namespace quire::kernels::cuda::emulate {

uint32_t ExtraPasses(const uint32_t* offsets, uint32_t count) {
  uint32_t in_group[8] = {};
  uint32_t most = 0;
  for (uint32_t i = 0; i < count; ++i) {
    bool again = false;
    for (uint32_t j = 0; j < i; ++j) again = again || offsets[j] == offsets[i];
    if (again) continue;
    const uint32_t passes = ++in_group[offsets[i] / 16 % 8];
    if (passes > most) most = passes;
  }
  return most > 1 ? most - 1 : 0;
}

uint32_t BankMeter::Cost(const Instruction& instruction) {
  uint32_t extra = 0;
  for (uint32_t quarter = 0; quarter < 4; ++quarter) {
    uint32_t offsets[8];
    uint32_t count = 0;
    for (uint32_t lane = 8 * quarter; lane < 8 * quarter + 8; ++lane) {
      if ((instruction.lanes >> lane & 1u) != 0) offsets[count++] = instruction.offset[lane];
    }
    extra += ExtraPasses(offsets, count);
  }
  return extra;
}

uint32_t BankMeter::Note(const void* site, uint32_t lane, uint32_t offset) {
  if (last_ >= sites_.size() || sites_[last_].address != site) {
    last_ = 0;
    while (last_ < sites_.size() && sites_[last_].address != site) ++last_;
    if (last_ == sites_.size()) sites_.push_back(Site{site, {}, 0, {}});
  }
  Site& at = sites_[last_];
  const uint32_t number = at.done[lane]++;
  const uint32_t index = number - at.first;
  while (at.instructions.size() <= index) at.instructions.emplace_back();
  Instruction& instruction = at.instructions[index];
  instruction.lanes |= 1u << lane;
  instruction.offset[lane] = offset;
  uint32_t extra = 0;
  while (!at.instructions.empty() && at.instructions.front().lanes == 0xffffffffu) {
    extra += Cost(at.instructions.front());
    at.instructions.pop_front();
    ++at.first;
  }
  return extra;
}

uint32_t BankMeter::Finish() {
  uint32_t extra = 0;
  for (const Site& site : sites_) {
    for (const Instruction& instruction : site.instructions) extra += Cost(instruction);
  }
  sites_.clear();
  return extra;
}

}  // namespace quire::kernels::cuda::emulate
