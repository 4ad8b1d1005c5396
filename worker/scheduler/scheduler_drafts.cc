// Drafts of rows that decode: tokens that may turn out to be their next outputs. A row's step
// computes them behind its last token and samples at each of them; the samples decide which of them
// become tokens (CommitDrafts).
#include <algorithm>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/scheduler/scheduler.h"

namespace quire {

// After everything else: what rows and prefill have left of the step's tokens and time goes to
// drafts, row by row.
void Scheduler::PlanDrafts() {
  int64_t left = MaxStepTokens(options_.max_num_seqs, options_.max_num_batched_tokens,
                               options_.cache.block_size);
  for (const StepRow& row : plan_->rows) left -= row.q_len;
  QUIRE_CHECK(left >= 0);
  for (size_t i = 0; i < plan_->rows.size(); ++i) {
    const int64_t count = DraftLimit(*(*rows_)[i].sequence, plan_->rows[i], left);
    if (count > 0) AddDrafts(i, static_cast<int32_t>(count));
    left -= std::max<int64_t>(0, count);
  }
}

// How many of a row's drafts this step takes: the row only decodes, its last token is known, its
// limit and its window leave outputs for all of them, and there are pages, tokens and time.
int64_t Scheduler::DraftLimit(const Sequence& sequence, const StepRow& row, int64_t tokens) const {
  if (sequence.drafts.empty() || sequence.drafts_in_flight > 0) return 0;
  const bool decodes = row.sample && row.q_len == 1 && row.score_count == 0 &&
                       sequence.samples_in_flight == 1 &&
                       static_cast<int64_t>(sequence.tokens.size()) == sequence.planned;
  if (!decodes) return 0;
  QUIRE_CHECK(row.first_position + 1 == sequence.planned);
  const int64_t outputs = std::min(sequence.output_limit, sequence.window_end);
  int64_t count = std::min({static_cast<int64_t>(sequence.drafts.size()), tokens,
                            outputs - sequence.OutputsKnown(), int64_t{kMaxDraftTokens}});
  if (kv_.PagesToExtend(sequence.blocks, sequence.planned + count) > PagesFor(&sequence)) {
    count = std::min(count, sequence.room - sequence.planned);
  }
  StepWork work = work_;
  for (int64_t i = 0; i < count && budget_.max_us > 0; ++i) {
    work.AddDecode(sequence.planned + i);
    if (i < budget_.free_drafts) continue;
    if (budget_.times.Predict(work) > static_cast<double>(budget_.max_us)) return i;
  }
  return std::max<int64_t>(0, count);
}

void Scheduler::AddDrafts(size_t index, int32_t count) {
  StepRow& row = plan_->rows[index];
  PlannedRow& planned = (*rows_)[index];
  Sequence& sequence = *planned.sequence;
  const int64_t end = sequence.planned + count;
  if (end > sequence.room) {
    const bool extended = Extend(sequence, end);
    QUIRE_CHECK(extended);
    TellBlocks(sequence);
  }
  QUIRE_CHECK(sequence.copy_position < 0 && !sequence.blocks_changed);
  sequence.drafts.resize(static_cast<size_t>(count));
  plan_->drafts.insert(plan_->drafts.end(), sequence.drafts.begin(), sequence.drafts.end());
  row.q_len += count;
  row.draft_count = count;
  planned.draft_count = count;
  planned.plain = false;
  planned.blocks_due = planned.blocks_due || end >= sequence.blocks_due;
  sequence.drafts_in_flight = count;
  sequence.plain_end = 0;  // the next step is not planned before this one has ended
  for (int64_t position = sequence.planned; position < end; ++position) work_.AddDecode(position);
}

void Scheduler::CommitDrafts(const PlannedRow& row, std::span<const TokenId> accepted) {
  Sequence& sequence = *row.sequence;
  QUIRE_CHECK(sequence.drafts_in_flight == row.draft_count && sequence.samples_in_flight == 1);
  QUIRE_CHECK(static_cast<int64_t>(accepted.size()) <= row.draft_count);
  if (sequence.place == SequencePlace::kNone) return;
  const int64_t count = static_cast<int64_t>(accepted.size());
  sequence.tokens.insert(sequence.tokens.end(), accepted.begin(), accepted.end());
  sequence.share->served += count * kDecodeTokenService;
  if (sequence.incarnation != row.incarnation && !QUIRE_BUG(drafts_outlive_their_pages)) {
    // It has lost its pages since, and with them these tokens' keys.
    const int64_t computed = static_cast<int64_t>(sequence.tokens.size());
    sequence.high_water = std::max(sequence.high_water, computed);
    PauseBehindDrafts(sequence);
    return;
  }
  const bool all = QUIRE_BUG(rejected_drafts_count_as_computed);
  const int64_t computed = all ? row.draft_count : count;
  sequence.planned += computed;
  sequence.computed += computed;
  sequence.told_tokens += count;
  sequence.served_end = std::max(sequence.served_end, sequence.planned);
}

// A preempted sequence waits while its window is open; the drafts that were taken since, and the
// sample behind them, may have used it up.
void Scheduler::PauseBehindDrafts(Sequence& sequence) {
  const bool ends = sequence.OutputsKnown() >= sequence.output_limit;
  if (sequence.place != SequencePlace::kWaiting || ends || !sequence.WindowUsedUp()) return;
  Take(sequence);
  Insert(sequence, SequencePlace::kPaused);
  if (sequence.followers > 0) ReplaceLeader(sequence);
}

}  // namespace quire
