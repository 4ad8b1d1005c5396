// Rows of a plan: the runner's updates about a sequence, and what a step's end frees.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/scheduler/scheduler.h"

namespace quire {

void Scheduler::GiveBirth(Sequence& sequence) {
  QUIRE_CHECK(sequence.row < 0 && sequence.steps_in_flight == 0);
  QUIRE_CHECK(!free_rows_.empty());
  sequence.row = free_rows_.back();
  free_rows_.pop_back();
  sequence.admitted = true;
  // The longest that it can become, so that no step of it allocates.
  const int64_t longest = sequence.prompt_length + sequence.output_limit;
  sequence.tokens.reserve(static_cast<size_t>(longest));
  sequence.drafts.clear();
  sequence.told_blocks.assign(options_.cache.kinds.size(), 0);
  sequence.told_first_live.assign(options_.cache.kinds.size(), 0);
  sequence.told_tokens = 0;
  sequence.BlocksChanged();
  if (sequence.preemptions >= kMaxPreemptions) {
    const int64_t most = sequence.prompt_length + sequence.output_limit;
    sequence.reserved_pages = std::min(kv_.PeakPages(most, LargestChunk()), kv_.pool().total());
    QUIRE_CHECK(sequence.reserved_pages > 0);
    protected_.push_back(&sequence);
  }
  RowBirth& birth = plan_->born.emplace_back();
  birth.row = sequence.row;
  birth.sequence = sequence.id;
  birth.choice = sequence.choice;
  birth.prompt_length = sequence.prompt_length;
  birth.sampling = *sequence.sampling;
  birth.end_ids = sequence.end_ids;
  birth.constrained = sequence.constrained;
  birth.adapter_slot = sequence.adapter_slot;
  if (QUIRE_BUG(adapter_of_the_neighbour) && plan_->born.size() > 1) {
    birth.adapter_slot = plan_->born[plan_->born.size() - 2].adapter_slot;
  }
}

void Scheduler::ScheduleRow(Sequence& sequence, int32_t q_len) {
  QUIRE_CHECK(sequence.row >= 0 && sequence.last_plan <= launched_);
  QUIRE_CHECK(q_len > 0 && q_len <= sequence.Pending());
  if (sequence.copy_position >= 0) TakeOwnBlocks(sequence);
  if (sequence.blocks_changed) TellBlocks(sequence);
  const int64_t end = sequence.planned + q_len;
  const int64_t scored = QUIRE_BUG(scored_twice_after_preemption) ? 0 : sequence.scored;
  const int64_t score_from = std::max(sequence.planned, scored);
  const int64_t score_end = std::min<int64_t>(end, sequence.prompt_length - 1);
  const bool scores = sequence.Scoring() && score_from < score_end;
  const int64_t ahead = scores || options_.tells_next ? 1 : 0;
  const int64_t tell_end =
      std::min<int64_t>(end + ahead, static_cast<int64_t>(sequence.tokens.size()));
  StepRow& row = plan_->rows.emplace_back();
  row.row = sequence.row;
  row.first_position = static_cast<int32_t>(sequence.planned);
  row.q_len = q_len;
  row.token_offset = static_cast<int32_t>(plan_->tokens.size());
  row.token_count = static_cast<int32_t>(std::max<int64_t>(0, tell_end - sequence.told_tokens));
  row.sample = end == sequence.KnownLength();
  if (row.token_count > 0) {
    const auto first = sequence.tokens.begin() + sequence.told_tokens;
    plan_->tokens.insert(plan_->tokens.end(), first, first + row.token_count);
  }
  // The runner knows its own sample.
  sequence.told_tokens = std::max(tell_end, end + (row.sample ? 1 : 0));
  if (scores) {
    row.score_from = static_cast<int32_t>(score_from);
    row.score_count = static_cast<int32_t>(score_end - score_from);
    sequence.scored = score_end;
    work_.decode_rows += row.score_count;
  }
  if (sequence.Prefilling()) {
    const int64_t again = std::clamp<int64_t>(sequence.served_end - sequence.planned, 0, q_len);
    work_.AddPrefill(sequence.planned, q_len);
    sequence.share->served += (q_len - again) * kPrefillTokenService;
  } else {
    work_.AddDecode(sequence.planned);
    sequence.share->served += kDecodeTokenService;
  }
  if (sequence.planned < std::max<int64_t>(sequence.prompt_length, sequence.high_water)) {
    Book(sequence, q_len);
  }
  if (QUIRE_BUG(publish_before_write) && sequence.HoldsBlocks()) {
    kv_.Publish(sequence.chain, sequence.blocks, sequence.tokens,
                std::min<int64_t>(end, static_cast<int64_t>(sequence.tokens.size())));
  }
  sequence.planned = end;
  sequence.served_end = std::max(sequence.served_end, end);
  sequence.last_plan = plan_->number;
  ++sequence.steps_in_flight;
  if (row.sample) ++sequence.samples_in_flight;
  AddPlannedRow(*rows_, sequence, row);
  FindPlainEnd(sequence);
}

// The positions, from the next one on, at which only its decoding needs attention: it has its own
// room that the runner knows of, no block fills up before the last of them, and neither limit nor
// window ends there. Every change of that sets the end to 0 (a Grant only moves it further).
void Scheduler::FindPlainEnd(Sequence& sequence) {
  const int64_t next = sequence.planned;
  sequence.plain_end = 0;
  if (sequence.copy_position >= 0 || sequence.blocks_changed || sequence.told_tokens <= next ||
      QUIRE_BUG(publish_before_write)) {
    return;
  }
  const int64_t done =
      std::max({sequence.prefill_end, sequence.high_water, int64_t{sequence.prompt_length}});
  if (next < done) return;
  const int64_t outputs = std::min(sequence.output_limit, sequence.window_end);
  sequence.plain_end =
      std::min({sequence.room, sequence.blocks_due, sequence.prompt_length - 1 + outputs});
}

// The records know two kinds of computed tokens: the prompt's, once, and whatever is computed
// again.
void Scheduler::Book(Sequence& sequence, int32_t q_len) {
  const int64_t booked_end = std::max<int64_t>(sequence.prompt_length, sequence.high_water);
  const int64_t booked = std::clamp<int64_t>(booked_end - sequence.planned, 0, q_len);
  const int64_t again = std::clamp<int64_t>(sequence.high_water - sequence.planned, 0, booked);
  sequence.computed_total += booked;
  sequence.recomputed_total += again;
  if (sequence.off_the_books) return;
  totals_.computed_tokens += static_cast<uint64_t>(booked);
  totals_.recomputed_tokens += static_cast<uint64_t>(again);
}

// Updates the runner's row: which of its blocks are new and which are gone.
void Scheduler::TellBlocks(Sequence& sequence) {
  sequence.blocks_changed = false;
  int32_t group = 0;
  for (size_t kind = 0; kind < sequence.blocks.kinds.size(); ++kind) {
    const KindBlocks& table = sequence.blocks.kinds[kind];
    const int32_t groups = options_.cache.kinds[kind].groups;
    const int32_t count = static_cast<int32_t>(table.blocks.size());
    QUIRE_CHECK(sequence.told_blocks[kind] <= count);
    if (table.first_live > sequence.told_first_live[kind]) {
      for (int32_t g = 0; g < groups; ++g) {
        plan_->drops.push_back({sequence.row, group + g, table.first_live});
      }
      sequence.told_first_live[kind] = table.first_live;
    }
    for (int32_t b = std::max(sequence.told_blocks[kind], table.first_live); b < count; ++b) {
      // States of blocks that keep none are where the next one that does keeps its own.
      int32_t holder = b;
      while (table.blocks[holder] == kNoBlock) ++holder;
      int32_t page = table.blocks[holder].value();
      if (QUIRE_BUG(state_of_a_neighbour) && options_.cache.kinds[kind].HoldsStates()) {
        for (const auto& told : plan_->appends) {
          if (told.group == group && told.row != sequence.row) page = told.page;
        }
      }
      for (int32_t g = 0; g < groups; ++g, page = kv_.pool().NextPage(page)) {
        QUIRE_CHECK(page >= 0);
        plan_->appends.push_back({sequence.row, group + g, b, page});
      }
    }
    sequence.told_blocks[kind] = count;
    group += groups;
  }
}

bool Scheduler::CommitRow(const PlannedRow& row, TokenId token) {
  Sequence& sequence = *row.sequence;
  QUIRE_CHECK(sequence.steps_in_flight > 0);
  --sequence.steps_in_flight;
  sequence.drafts_in_flight = 0;
  if (row.sample) {
    QUIRE_CHECK(sequence.samples_in_flight > 0);
    --sequence.samples_in_flight;
  }
  if (sequence.place == SequencePlace::kNone) return false;
  if (sequence.incarnation == row.incarnation || QUIRE_BUG(void_progress_counts)) {
    sequence.computed += row.q_len;
    QUIRE_CHECK(sequence.computed <= sequence.planned);
    // Before the window moves on: followers are at the prompt's last token.
    if (sequence.followers > 0) ForkFollowers(sequence);
    if (row.blocks_due) SettleBlocks(sequence);
  }
  if (row.sample && token >= 0) sequence.tokens.push_back(token);
  return true;
}

// Full blocks become available to others, and blocks behind a window are released.
void Scheduler::SettleBlocks(Sequence& sequence) {
  kv_.Publish(sequence.chain, sequence.blocks, sequence.tokens, sequence.computed);
  if (windowed_) {
    kv_.FreeBehindWindow(sequence.blocks, sequence.computed);
    sequence.BlocksChanged();
  }
  sequence.blocks_due = kv_.NextDue(sequence.computed);
  QUIRE_CHECK(sequence.blocks_due > sequence.computed);
}

// The index entries of the rows' blocks are far apart in memory: they are prefetched before the
// first row is committed. Each stage reads what the previous one has prefetched, some rows behind
// it.
void Scheduler::PrepareCommit(std::span<const PlannedRow> rows) {
  constexpr size_t kStage = 6;
  settling_.clear();
  for (const PlannedRow& row : rows) {
    if (row.blocks_due) settling_.push_back(&row);
  }
  const size_t count = settling_.size();
  const auto at_stage = [&](size_t i, size_t stage) -> const PlannedRow* {
    const size_t at = i - stage * kStage;  // wraps round before the first
    if (at >= count) return nullptr;
    const Sequence& sequence = *settling_[at]->sequence;
    const bool goes_on = sequence.place != SequencePlace::kNone &&
                         sequence.incarnation == settling_[at]->incarnation;
    return goes_on ? settling_[at] : nullptr;
  };
  for (size_t i = 0; i < count + 3 * kStage; ++i) {
    if (i < count) settling_[i]->sequence->PrefetchSettling();
    if (const PlannedRow* row = at_stage(i, 1)) row->sequence->PrefetchTables();
    if (const PlannedRow* row = at_stage(i, 2)) {
      Sequence& sequence = *row->sequence;
      kv_.PreparePublish(sequence.chain, sequence.tokens, sequence.computed + row->q_len);
    }
    if (const PlannedRow* row = at_stage(i, 3)) {
      kv_.PrefetchPublish(row->sequence->chain, row->sequence->blocks);
    }
  }
}

void Scheduler::CommitStep(uint64_t number, std::span<const PlannedRow> rows) {
  QUIRE_CHECK_MSG(number == committed_ + 1, "steps are committed in order");
  QUIRE_CHECK(number <= launched_ && !rows.empty());
  committed_ = number;
  for (LeavingBlocks& leaving : leaving_) {
    if (leaving.last_plan <= committed_) kv_.Release(leaving.blocks);
  }
  std::erase_if(leaving_,
                [](const LeavingBlocks& leaving) { return leaving.blocks.kinds.empty(); });
}

void Scheduler::ReleaseRow(Sequence& sequence) {
  QUIRE_CHECK(sequence.row >= 0);
  retiring_rows_.push_back(sequence.row);
  free_rows_.push_back(sequence.row);
  sequence.row = -1;
  if (sequence.reserved_pages == 0) return;
  sequence.reserved_pages = 0;
  std::erase(protected_, &sequence);
}

void Scheduler::ReleaseBlocks(Sequence& sequence) {
  if (!sequence.HoldsBlocks()) return;
  if (sequence.steps_in_flight == 0 || QUIRE_BUG(blocks_back_before_the_step_ends)) {
    kv_.Release(sequence.blocks);
  } else {
    QUIRE_CHECK(sequence.last_plan > committed_);
    leaving_.push_back({sequence.last_plan, PagesHeldBy(sequence), std::move(sequence.blocks)});
    sequence.blocks.kinds.clear();
  }
  QUIRE_CHECK(!sequence.HoldsBlocks());
  SyncRoom(sequence);
}

}  // namespace quire
