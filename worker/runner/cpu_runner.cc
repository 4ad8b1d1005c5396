#include "worker/runner/cpu_runner.h"

#include <utility>

#include "common/check.h"

namespace quire {

std::vector<CacheKindShape> CacheKindsOf(const kernels::KvLayout& layout) {
  std::vector<CacheKindShape> kinds;
  for (const kernels::KvKind& kind : layout.kinds) kinds.push_back({kind.window, kind.groups});
  size_t group = 0;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    for (int32_t i = 0; i < kinds[kind].groups; ++i, ++group) {
      QUIRE_CHECK_MSG(
          group < layout.groups.size() && layout.groups[group].kind == static_cast<int>(kind),
          "groups are numbered kind by kind");
    }
  }
  QUIRE_CHECK(group == layout.groups.size());
  return kinds;
}

CpuRunner::CpuRunner(kernels::LoadedProgram& program, CpuRunnerOptions options)
    : program_(program), options_(std::move(options)), rows_(options_.limits) {
  QUIRE_CHECK(options_.max_in_flight >= 1);
  QUIRE_CHECK(options_.now_us != nullptr);
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
  const int64_t start_us = options_.now_us();
  program_.Run(rows_.BuildBatch(plan));
  rows_.TakeSamples(plan, result);
  result.elapsed_us = options_.now_us() - start_us;
  in_flight_.pop_front();
}

}  // namespace quire
