#include "worker/draft/medusa_drafter.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/check.h"

namespace quire {

MedusaDrafter::MedusaDrafter(HeadDrafterOptions options, std::vector<kernels::LoadedProgram*> heads)
    : HeadDrafter(std::move(options)), heads_(std::move(heads)) {
  const HeadDrafterOptions& own = this->options();
  QUIRE_CHECK(!heads_.empty() && static_cast<size_t>(own.max_drafts) <= heads_.size());
  QUIRE_CHECK(own.feature_width == own.hidden_size);
  const size_t width = static_cast<size_t>(own.hidden_size);
  states_.resize(static_cast<size_t>(own.max_rows) * width);
  inputs_.reserve(kMaxHeadRows * width);
  positions_.resize(kMaxHeadRows);
  tokens_.resize(kMaxHeadRows);
  std::iota(tokens_.begin(), tokens_.end(), 0);  // which of them sample, too
}

void MedusaDrafter::Observe(const ObservedStep& step) {
  const size_t width = static_cast<size_t>(options().hidden_size);
  for (const ObservedRow& row : step.rows) {
    if (!row.sampled || row.next.empty()) continue;
    const auto count = static_cast<int32_t>(row.next.size());
    // The state that the row's last token was sampled from.
    const float* state = step.features.Row(row.first_feature + count - 1);
    std::copy_n(state, width, states_.begin() + static_cast<ptrdiff_t>(row.slot * width));
    Hold(row.slot, row.sequence, int64_t{row.first_position} + count + 1);
  }
}

void MedusaDrafter::Draft(std::span<const Active> rows) {
  const size_t width = static_cast<size_t>(options().hidden_size);
  int32_t most = 0;
  inputs_.clear();
  for (const Active& active : rows) {
    const auto state = states_.begin() + static_cast<ptrdiff_t>(active.slot * width);
    inputs_.insert(inputs_.end(), state, state + static_cast<ptrdiff_t>(width));
    most = std::max(most, active.row->wanted);
  }
  // A head computes all rows; one that needs fewer tokens leaves the rest.
  const size_t heads = std::min(heads_.size(), static_cast<size_t>(most));
  for (size_t head = 0; head < heads; ++head) {
    sample_rows_.clear();
    for (const Active& active : rows) {
      const DraftRow& row = *active.row;
      const int64_t outputs = static_cast<int64_t>(row.tokens.size()) - row.prompt_length;
      sample_rows_.push_back(
          SampleOf(*row.sampling, row.choice, outputs + static_cast<int64_t>(head)));
    }
    outputs_.assign(rows.size(), {});
    kernels::StepBatch batch;
    batch.tokens = std::span(positions_).first(rows.size());  // no op reads them
    batch.positions = batch.tokens;
    batch.sampled_tokens = std::span(tokens_).first(rows.size());
    batch.sample_rows = sample_rows_;
    batch.sample_outputs = outputs_;
    batch.inputs = inputs_;
    heads_[head]->Run(batch);
    Count(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      std::vector<TokenId>& drafts = *rows[i].row->drafts;
      // A row whose head had no answer has no drafts behind it.
      if (drafts.size() != head || static_cast<int32_t>(head) >= rows[i].row->wanted) continue;
      const TokenId token = outputs_[i].not_a_number ? -1 : TargetId(outputs_[i].token);
      if (token >= 0) drafts.push_back(token);
    }
  }
}

}  // namespace quire
