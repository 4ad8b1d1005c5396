// Fuzzes the step packet: what is accepted keeps its limits and encodes to the same bytes.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "tests/support/packet_limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const quire::StepLimits limits = quire::test::SmallPacketLimits();
  const std::span<const std::byte> packet(reinterpret_cast<const std::byte*>(data), size);
  quire::StepPlan plan;
  if (!quire::DecodeStepPlan(packet, limits, plan).ok()) return 0;
  for (const quire::BlockAppend& append : plan.appends) {
    if (append.page < 0 || append.page >= 100) std::abort();
  }
  std::vector<std::byte> again;
  quire::EncodeStepPlan(plan, again);
  if (again.size() != size || std::memcmp(again.data(), data, size) != 0) std::abort();
  return 0;
}
