#include "worker/runner/cpu_runner.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace quire {

std::vector<CacheKindShape> CacheKindsOf(const kernels::KvLayout& layout) {
  std::vector<CacheKindShape> kinds;
  for (const kernels::KvKind& kind : layout.kinds) {
    kinds.push_back({kind.window, kind.groups, kind.state_interval});
  }
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
    : program_(program),
      options_(std::move(options)),
      ahead_(options_.max_in_flight > 1 && program.MaxInFlight() >= options_.max_in_flight),
      rows_(options_.limits, options_.masks) {
  QUIRE_CHECK(options_.max_in_flight >= 1);
  QUIRE_CHECK(options_.now_us != nullptr);
  QUIRE_CHECK_MSG(options_.observer == nullptr || !ahead_, "an observer sees one step at a time");
  in_flight_.reserve(static_cast<size_t>(options_.max_in_flight));
  spare_.resize(static_cast<size_t>(options_.max_in_flight));
  for (Flight& flight : spare_) {
    flight.plan.Reserve(static_cast<size_t>(options_.limits.max_rows),
                        static_cast<size_t>(options_.limits.max_tokens),
                        MaxAppends(options_.limits));
  }
}

absl::Status CpuRunner::TryLaunch(std::span<const std::byte> packet) {
  QUIRE_CHECK(static_cast<int>(in_flight_.size()) < options_.max_in_flight);
  Flight& flight = spare_.back();
  QUIRE_RETURN_IF_ERROR(DecodeStepPlan(packet, options_.limits, flight.plan));
  if (flight.plan.number != last_number_ + 1) return InvalidArgument("a step packet is missing");
  last_number_ = flight.plan.number;
  flight.settled = false;
  if (ahead_) {
    if (rows_.NeedsSamples(flight.plan)) {
      for (Flight& before : in_flight_) {
        if (!before.settled) Settle(before, before.result);
      }
    }
    flight.launched_us = options_.now_us();
    if (!lost_) program_.Launch(rows_.BuildBatch(flight.plan));
  }
  in_flight_.push_back(std::move(flight));
  spare_.pop_back();
  return absl::OkStatus();
}

void CpuRunner::Launch(std::span<const std::byte> packet, int64_t /*now_us*/) {
  if (lost_) return;
  // The packet comes from this process: a damaged one is our own bug.
  const absl::Status launched = TryLaunch(packet);
  QUIRE_CHECK_MSG(launched.ok(), StatusMessage(launched).c_str());
}

bool CpuRunner::Ready() {
  if (lost_ || !ahead_) return true;
  QUIRE_CHECK(!in_flight_.empty());
  return in_flight_.front().settled || program_.Done();
}

void CpuRunner::Settle(Flight& flight, StepResult& result) {
  if (lost_) return;
  size_t samples = 0;
  for (const StepRow& row : flight.plan.rows) {
    samples += (row.sample ? 1 : 0) + static_cast<size_t>(row.draft_count + row.score_count);
  }
  outputs_.resize(samples);
  program_.Collect(outputs_);
  lost_ = !program_.Failure().empty();
  if (lost_) return;  // the results of the step are unspecified
  rows_.TakeSamples(flight.plan, outputs_, result);
  // A step that was launched behind another began when that one had ended.
  const int64_t end_us = options_.now_us();
  result.elapsed_us = end_us - std::max(flight.launched_us, last_end_us_);
  last_end_us_ = end_us;
  flight.settled = true;
}

void CpuRunner::Collect(StepResult& result) {
  if (lost_) return;
  QUIRE_CHECK(!in_flight_.empty());
  Flight& flight = in_flight_.front();
  if (!ahead_) {
    const int64_t start_us = options_.now_us();
    const kernels::StepBatch& batch = rows_.BuildBatch(flight.plan);
    program_.Run(batch);
    lost_ = !program_.Failure().empty();
    if (lost_) return;  // the results of the step are unspecified
    rows_.TakeSamples(flight.plan, batch.sample_outputs, result);
    if (options_.observer != nullptr) {
      rows_.Describe(flight.plan, observed_);
      options_.observer->Observe({program_.Features(), observed_, batch.copies});
    }
    result.elapsed_us = options_.now_us() - start_us;
  } else if (flight.settled) {
    std::swap(result, flight.result);
  } else {
    Settle(flight, result);
    if (lost_) return;
  }
  spare_.push_back(std::move(flight));
  in_flight_.erase(in_flight_.begin());  // there are one or two
}

}  // namespace quire
