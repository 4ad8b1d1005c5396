#include "worker/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"

namespace quire {
int32_t MaxStepTokens(int32_t max_num_seqs, int32_t max_num_batched_tokens, int32_t block_size) {
  return std::max(max_num_batched_tokens, max_num_seqs + block_size);
}

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      kv_({.shape = options.cache,
           .prefix_caching = options.prefix_caching,
           .hash_mask = options.hash_mask,
           .on_page_freed = options.on_page_freed}) {
  QUIRE_CHECK(options_.max_num_seqs > 0);
  QUIRE_CHECK(options_.max_num_batched_tokens > 0);
  const size_t rows = static_cast<size_t>(options_.max_num_seqs);
  for (int32_t row = options_.max_num_seqs; row-- > 0;) free_rows_.push_back(row);
  for (auto* list : {&running_, &prefilling_, &protected_}) list->reserve(rows);
  retiring_rows_.reserve(rows);
  settling_.reserve(rows);
  // A step publishes no more blocks than it has rows and blocks of prefill, and allocates no more.
  const int32_t step_tokens = MaxStepTokens(options_.max_num_seqs, options_.max_num_batched_tokens,
                                            options_.cache.block_size);
  const size_t blocks = rows + static_cast<size_t>(step_tokens / options_.cache.block_size) + 1;
  kv_.events().Reserve(2 * blocks * options_.cache.kinds.size());
  for (const CacheKindShape& kind : options_.cache.kinds) {
    block_pages_ += kind.groups;
    windowed_ = windowed_ || kind.window > 0;
    stateful_ = stateful_ || kind.HoldsStates();
  }
}

bool Scheduler::CanEverFit(int64_t length) const {
  return kv_.PeakPages(length, options_.cache.block_size) <= kv_.pool().total();
}

void Scheduler::Enqueue(Sequence& sequence) {
  QUIRE_CHECK(sequence.place == SequencePlace::kNone);
  QUIRE_CHECK(!sequence.tokens.empty() && sequence.prompt_length > 0);
  QUIRE_CHECK(sequence.OutputCount() < sequence.output_limit);
  if (sequence.cache != nullptr) kv_.Open(sequence.chain, *sequence.cache);
  Join(sequence);
  Insert(sequence, SequencePlace::kWaiting);
}

void Scheduler::EnqueueBehind(Sequence& sequence, Sequence& leader) {
  // The last token of the prompt is computed by each choice: its logits are theirs alone.
  if (sequence.prompt_length < 2) return Enqueue(sequence);
  QUIRE_CHECK(leader.place == SequencePlace::kWaiting && leader.computed == 0);
  QUIRE_CHECK(sequence.prompt_length == leader.prompt_length);
  QUIRE_CHECK(sequence.OutputCount() < sequence.output_limit);
  if (sequence.cache != nullptr) kv_.Open(sequence.chain, *sequence.cache);
  sequence.resumed = false;  // the cached part of the prompt saves the leader work
  sequence.leader = &leader;
  ++leader.followers;
  Join(sequence);
  Insert(sequence, SequencePlace::kFollowing);
}

void Scheduler::Remove(Sequence& sequence) {
  QUIRE_CHECK(sequence.place != SequencePlace::kNone);
  if (sequence.followers > 0) ReplaceLeader(sequence);
  if (sequence.leader != nullptr) --sequence.leader->followers;
  sequence.leader = nullptr;
  Take(sequence);
  if (sequence.row >= 0) ReleaseRow(sequence);
  ReleaseBlocks(sequence);
  kv_.Close(sequence.chain);
  shares_.Leave(*sequence.share);
  sequence.share = nullptr;
  if (unfit_ == &sequence) unfit_ = nullptr;
}

void Scheduler::Grant(Sequence& sequence, int64_t up_to) {
  sequence.window_end = std::max(sequence.window_end, up_to);
  if (sequence.place != SequencePlace::kPaused || sequence.WindowUsedUp()) return;
  if (QUIRE_BUG(grant_wakes_nobody)) return;
  Take(sequence);
  Insert(sequence, SequencePlace::kWaiting);
}

bool Scheduler::Plan(StepPlan& plan, std::vector<PlannedRow>& rows, const StepBudget& budget) {
  QUIRE_CHECK_MSG(unfit_ == nullptr, "the sequence that was named is still here");
  plan.Clear();
  rows.clear();
  plan.number = launched_ + 1;
  plan_ = &plan;
  rows_ = &rows;
  budget_ = budget;
  work_ = StepWork();
  ++pass_;
  admitting_ = true;
  shares_.StartPass();
  GiveShares();
  MakeRoomForDecodes();
  PlanDecodes();
  PlanResumes();
  // Decodes are never held back, and prefill always gets a block, whatever the budget is.
  prefill_budget_ =
      std::max<int64_t>(options_.cache.block_size, int64_t{options_.max_num_batched_tokens} -
                                                       static_cast<int64_t>(plan.rows.size()));
  PlanPrefills();
  if (budget.drafts) PlanDrafts();
  plan_ = nullptr;
  rows_ = nullptr;
  if (plan.rows.empty()) {
    QUIRE_CHECK_MSG(StepsInFlight() || Idle() || unfit_ != nullptr,
                    "a pass made no progress and named nobody");
    return false;
  }
  QUIRE_CHECK(plan.rows.size() == rows.size());
  QUIRE_CHECK(rows.size() <= static_cast<size_t>(options_.max_num_seqs));
  plan.retired.swap(retiring_rows_);
  launched_ = plan.number;
  return true;
}

void Scheduler::PauseStalled() {
  for (size_t i = 0; i < running_.size();) {
    Sequence& sequence = *running_[i];
    const bool ending = sequence.OutputsKnown() >= sequence.output_limit;
    if (sequence.Prefilling() || ending || !sequence.WindowUsedUp()) {
      ++i;
    } else {
      Pause(sequence);  // the last of the list takes its place
    }
  }
}

// A row whose window is used up leaves the batch and keeps its blocks.
void Scheduler::Pause(Sequence& sequence) {
  Take(sequence);
  ReleaseRow(sequence);
  Insert(sequence, SequencePlace::kPaused);
}

// ScheduleRow for a row that only decodes, before its plain_end: nearly all rows of nearly all
// steps.
[[gnu::always_inline]] inline void Scheduler::ScheduleDecode(Sequence& sequence) {
  const int64_t planned = sequence.planned;
  const int64_t end = planned + 1;
  QUIRE_CHECK(sequence.row >= 0 && sequence.KnownLength() == end);
  StepRow& row = plan_->rows.emplace_back();
  row.row = sequence.row;
  row.first_position = static_cast<int32_t>(planned);
  row.q_len = 1;
  row.token_offset = static_cast<int32_t>(plan_->tokens.size());
  row.sample = true;
  work_.AddDecode(planned);
  sequence.share->served += kDecodeTokenService;
  sequence.told_tokens = end + 1;
  sequence.planned = end;
  sequence.served_end = end;
  sequence.last_plan = plan_->number;
  ++sequence.steps_in_flight;
  ++sequence.samples_in_flight;
  PlannedRow& planned_row = rows_->emplace_back();
  planned_row.sequence = &sequence;
  planned_row.incarnation = sequence.incarnation;
  planned_row.q_len = 1;
  planned_row.sample = true;
  planned_row.plain = true;
  if (end < sequence.plain_end) return;  // a block can fill up at its end alone
  planned_row.blocks_due = end >= sequence.blocks_due;
  planned_row.plain = !planned_row.blocks_due;
}

void Scheduler::PlanDecodes() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (i + kRowsAhead < running_.size()) running_[i + kRowsAhead]->Prefetch();
    if (i + kTokensAhead < running_.size()) {
      const Sequence& soon = *running_[i + kTokensAhead];
      if (soon.planned >= soon.plain_end) soon.PrefetchSettling();
    }
    if (sequence.planned < sequence.plain_end) {
      ScheduleDecode(sequence);
      continue;
    }
    if (sequence.Prefilling() || sequence.AwaitsStep()) continue;
    const int64_t outputs = sequence.OutputsKnown();
    if (outputs >= sequence.output_limit) continue;  // its end is in flight
    if (outputs >= sequence.window_end) {
      Pause(sequence);
      --i;  // the last of the list has taken its place
      continue;
    }
    QUIRE_CHECK(outputs + sequence.prompt_length - sequence.planned == 1);  // is pending
    const bool grows = sequence.planned >= sequence.room || sequence.copy_position >= 0;
    if (grows && !Extend(sequence, sequence.planned + 1)) {
      QUIRE_CHECK_MSG(StepsInFlight(), "a decode row was held back");
      continue;
    }
    ScheduleRow(sequence, 1);
    PlannedRow& row = rows_->back();
    row.plain = !row.blocks_due && row.score_count == 0;
  }
}

// Rows that return from a pause: they hold their blocks and wait for no prefill.
void Scheduler::PlanResumes() {
  for (size_t i = 0; i < resuming_.size() && !free_rows_.empty();) {
    Sequence& sequence = *resuming_[i];
    const bool claimed = claimant_ != nullptr && claimant_ != &sequence && free_rows_.size() == 1;
    if (sequence.steps_in_flight > 0 || sequence.Prefilling() || claimed) {
      ++i;
      continue;
    }
    QUIRE_CHECK(sequence.Pending() == 1);
    CacheHit none;  // it holds its blocks
    if (PagesToAdmit(sequence, none) > PagesFor(&sequence) &&
        !ReclaimForAdmission(sequence, none)) {
      admitting_ = false;  // no other row takes the pages that it waits for
      return;
    }
    i = 0;  // reclaiming may have taken others out of the list
    Take(sequence);
    Insert(sequence, SequencePlace::kRunning);
    GiveBirth(sequence);
    const bool extended = Extend(sequence, sequence.planned + 1);
    QUIRE_CHECK(extended);
    ScheduleRow(sequence, 1);
  }
}

void Scheduler::PlanPrefills() {
  while (prefill_budget_ > 0) {
    Sequence* next = NextForPrefill();
    if (next == nullptr || ChunkLimit(*next, next->planned) == 0) return;  // no work, or no time
    if (next->row < 0) {
      if (next->steps_in_flight > 0 || !Admit(*next)) admitting_ = false;
    } else if (!ContinuePrefill(*next)) {
      next->passed_over = pass_;
    }
  }
}

// The sequence that prefills next: a row of the first tenant in line, with rows that have begun
// before waiting ones.
Sequence* Scheduler::NextForPrefill() const {
  Sequence* next = nullptr;
  for (Sequence* sequence : prefilling_) {
    if (sequence->last_plan > launched_ || sequence->passed_over == pass_) continue;
    if (HeldForForks(*sequence)) continue;
    if (next == nullptr || GoesBefore(*sequence, *next)) next = sequence;
  }
  if (!admitting_ || free_rows_.empty()) return next;
  for (Sequence* sequence : resuming_) {  // those that share a prompt have some of it left
    if (!sequence->Prefilling()) continue;
    if (next == nullptr || GoesBefore(*sequence, *next)) next = sequence;
  }
  for (const Tenant* tenant : shares_.present()) {
    if (tenant->waiting.empty()) continue;
    Sequence* first = tenant->waiting.front();
    if (next == nullptr || GoesBefore(*first, *next)) next = first;
  }
  return next;
}

bool Scheduler::GoesBefore(const Sequence& a, const Sequence& b) const {
  if (a.rank != b.rank) return a.rank < b.rank;
  if (a.share != b.share && a.share->served != b.share->served) {
    return a.share->served < b.share->served;
  }
  if (a.share == b.share && (a.row >= 0) != (b.row >= 0)) return a.row >= 0;
  return RunsBefore(&a, &b);
}

// How much of a chunk after `planned` budget and time permit; 0: nothing more in this step.
int64_t Scheduler::ChunkLimit(const Sequence& sequence, int64_t planned) const {
  int64_t end =
      sequence.row < 0 ? static_cast<int64_t>(sequence.tokens.size()) : sequence.prefill_end;
  // Followers share the state there, which the next token replaces.
  const int64_t fork = sequence.prompt_length - 1;
  if (stateful_ && sequence.followers > 0 && planned < fork) end = std::min(end, fork);
  const int64_t block_size = options_.cache.block_size;
  int64_t budget = prefill_budget_;
  StepTimes times = budget_.times;
  if (sequence.Scoring()) {  // a scored position has the logits of a decode row
    budget = std::min(budget, std::max(block_size, budget / kScoredTokenWeight));
    times.token_us += times.row_us;
  }
  const int64_t chunk = std::min(end - planned, budget);
  QUIRE_CHECK(chunk > 0);
  if (budget_.max_us == 0) return chunk;
  const double time_left = static_cast<double>(budget_.max_us) - budget_.times.Predict(work_);
  const int64_t in_time =
      std::min(times.PrefillWithin(time_left, planned),
               std::max<int64_t>(0, times.longest_prefill - work_.prefill_tokens));
  if (in_time >= chunk) return chunk;
  const int64_t whole_blocks = (planned + in_time) / block_size * block_size - planned;
  if (whole_blocks > 0) return whole_blocks;
  return work_.prefill_tokens == 0 ? std::min(chunk, block_size) : 0;
}

bool Scheduler::ContinuePrefill(Sequence& sequence) {
  if (AffordableChunk(sequence) == 0 && !MakeRoomForPrefill(sequence)) return false;
  const int64_t chunk = AffordableChunk(sequence);
  QUIRE_CHECK(chunk > 0);
  const bool extended = Extend(sequence, sequence.planned + chunk);
  QUIRE_CHECK(extended);
  prefill_budget_ -= BudgetTaken(sequence, chunk);
  ScheduleRow(sequence, static_cast<int32_t>(chunk));
  if (!sequence.Prefilling()) std::erase(prefilling_, &sequence);
  return true;
}

SchedulerLoad Scheduler::Load() const {
  SchedulerLoad load;
  load.running_rows = static_cast<uint32_t>(running_.size());
  load.waiting = static_cast<uint32_t>(waiting_count_ + following_.size());
  load.waiting_prefill_tokens = following_.size();  // each its last token of the prompt
  for (const Sequence* sequence : resuming_) {
    load.waiting_prefill_tokens += static_cast<uint64_t>(sequence->Pending());
  }
  for (const Tenant* tenant : shares_.present()) {
    for (const Sequence* sequence : tenant->waiting) {
      load.waiting_prefill_tokens += static_cast<uint64_t>(sequence->Pending());
    }
  }
  for (const Sequence* sequence : prefilling_) {
    load.running_prefill_tokens += static_cast<uint64_t>(sequence->prefill_end - sequence->planned);
  }
  return load;
}

}  // namespace quire
