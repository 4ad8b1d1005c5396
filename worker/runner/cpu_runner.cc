#include "worker/runner/cpu_runner.h"

#include <utility>

#include "common/check.h"

namespace quire {

CpuRunner::CpuRunner(kernels::LoadedProgram& program, CpuRunnerOptions options)
    : program_(program), options_(std::move(options)), rows_(options_.limits) {
  QUIRE_CHECK(options_.max_in_flight >= 1);
}

void CpuRunner::Launch(std::span<const std::byte> packet, int64_t /*now_us*/) {
  QUIRE_CHECK(static_cast<int>(in_flight_.size()) < options_.max_in_flight);
  StepPlan& plan = in_flight_.emplace_back();
  const absl::Status decoded = DecodeStepPlan(packet, options_.limits, plan);
  // The packet comes from this process: a damaged one is our own bug.
  QUIRE_CHECK_MSG(decoded.ok(), StatusMessage(decoded).c_str());
  QUIRE_CHECK_MSG(plan.number == last_number_ + 1, "a step packet is missing");
  last_number_ = plan.number;
}

void CpuRunner::Collect(StepResult& result) {
  QUIRE_CHECK(!in_flight_.empty());
  const StepPlan& plan = in_flight_.front();
  const int64_t start_us = options_.now_us ? options_.now_us() : 0;
  program_.Run(rows_.BuildBatch(plan));
  rows_.TakeSamples(plan, result);
  result.elapsed_us = options_.now_us ? options_.now_us() - start_us : 0;
  in_flight_.pop_front();
}

}  // namespace quire
