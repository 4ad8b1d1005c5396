#include "worker/ranks/expected_results.h"

#include "common/check.h"

namespace quire {

ExpectedResults::ExpectedResults(const StepLimits& limits, int max_in_flight)
    : limits_(limits),
      sequence_of_row_(static_cast<size_t>(limits.max_rows)),
      constrained_row_(static_cast<size_t>(limits.max_rows)),
      steps_(static_cast<size_t>(max_in_flight)) {}

void ExpectedResults::Clear() {
  first_ = 0;
  count_ = 0;
}

void ExpectedResults::Launch(std::span<const std::byte> packet) {
  QUIRE_CHECK(count_ < steps_.size());
  const absl::Status decoded = DecodeStepPlan(packet, limits_, plan_);
  QUIRE_CHECK_MSG(decoded.ok(), "the engine's packet is within its own limits");
  Step& step = steps_[(first_ + count_++) % steps_.size()];
  step.number = plan_.number;
  step.samples.clear();
  step.scored.clear();
  for (const RowBirth& birth : plan_.born) {
    sequence_of_row_[static_cast<size_t>(birth.row)] = birth.sequence;
    constrained_row_[static_cast<size_t>(birth.row)] = birth.constrained;
  }
  constrained_.clear();
  for (const StepRow& row : plan_.rows) {
    if (row.sample) {
      const size_t at = static_cast<size_t>(row.row);
      for (int32_t i = 0; i <= row.draft_count; ++i) {
        step.samples.push_back({row.row, sequence_of_row_[at]});
        if (constrained_row_[at]) constrained_.push_back(sequence_of_row_[at]);
      }
    }
    for (int32_t i = 0; i < row.score_count; ++i) step.scored.push_back(row.score_from + i + 1);
  }
}

bool ExpectedResults::Fits(const StepResult& result) const {
  QUIRE_CHECK(count_ > 0);
  const Step& step = steps_[first_];
  if (result.number != step.number || result.samples.size() != step.samples.size() ||
      result.scores.size() != step.scored.size()) {
    return false;
  }
  for (size_t i = 0; i < step.samples.size(); ++i) {
    const Sample& wanted = step.samples[i];
    if (result.samples[i].row != wanted.row || result.samples[i].sequence != wanted.sequence) {
      return false;
    }
  }
  for (size_t i = 0; i < step.scored.size(); ++i) {
    if (result.scores[i].position != step.scored[i]) return false;
  }
  return true;
}

void ExpectedResults::Pop() {
  QUIRE_CHECK(count_ > 0);
  first_ = (first_ + 1) % steps_.size();
  --count_;
}

}  // namespace quire
