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
  in_flight_.reserve(static_cast<size_t>(options_.max_in_flight));
  spare_.resize(static_cast<size_t>(options_.max_in_flight));
  for (StepPlan& plan : spare_) {
    plan.Reserve(static_cast<size_t>(options_.limits.max_rows),
                 static_cast<size_t>(options_.limits.max_tokens), MaxAppends(options_.limits));
  }
}

absl::Status CpuRunner::TryLaunch(std::span<const std::byte> packet) {
  QUIRE_CHECK(static_cast<int>(in_flight_.size()) < options_.max_in_flight);
  StepPlan& plan = spare_.back();
  QUIRE_RETURN_IF_ERROR(DecodeStepPlan(packet, options_.limits, plan));
  if (plan.number != last_number_ + 1) return InvalidArgument("a step packet is missing");
  last_number_ = plan.number;
  in_flight_.push_back(std::move(plan));
  spare_.pop_back();
  return absl::OkStatus();
}

void CpuRunner::Launch(std::span<const std::byte> packet, int64_t /*now_us*/) {
  if (lost_) return;
  // The packet comes from this process: a damaged one is our own bug.
  const absl::Status launched = TryLaunch(packet);
  QUIRE_CHECK_MSG(launched.ok(), StatusMessage(launched).c_str());
}

void CpuRunner::Collect(StepResult& result) {
  if (lost_) return;
  QUIRE_CHECK(!in_flight_.empty());
  const StepPlan& plan = in_flight_.front();
  const int64_t start_us = options_.now_us();
  program_.Run(rows_.BuildBatch(plan));
  lost_ = !program_.Failure().empty();
  if (lost_) return;  // what the step has left may be anything
  rows_.TakeSamples(plan, result);
  result.elapsed_us = options_.now_us() - start_us;
  spare_.push_back(std::move(in_flight_.front()));
  in_flight_.erase(in_flight_.begin());  // there are one or two
}

}  // namespace quire
