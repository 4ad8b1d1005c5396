// The bed of op tests on a GPU: takes device_bed.cc's place in the binary that ./dev gpu runs.
#include <cstdio>
#include <cstdlib>

#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {

BedRuntime::BedRuntime(uint64_t) {
  runtime::Error error;
  body_ = runtime::MakeCudaRuntime(0, error);
  if (body_ != nullptr) return;
  // No test can say anything: not a failure of one, but of the place.
  std::printf("no device: %s\n", error.c_str());
  std::fflush(stdout);
  std::_Exit(4);
}

bool BedRuntime::counts() const { return false; }
const std::map<std::string, emulate::Counters>& BedRuntime::counters() const {
  static const std::map<std::string, emulate::Counters> none;
  return none;
}
void BedRuntime::ClearCounters() {}
void BedRuntime::LimitShared(uint32_t) {}
void BedRuntime::SetTimes(double, double) {}

void ExpectWithinBudget(const BedRuntime&, const std::string&, double, double) {}

}  // namespace quire::kernels::cuda::test
